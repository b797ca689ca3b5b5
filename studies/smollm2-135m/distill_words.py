"""The word lists behind the distillation prompts: topics, tasks, people, places and small facts.

Written for this study. Each list is one string, its items between semicolons, so that a reader
sees its range at a glance. distill_talk.py and distill_texts.py join them to prompts.
"""

import random


def any_of(rng: random.Random, *forms: str) -> str:
    """One of `forms`."""
    return rng.choice(forms)


def _items(text: str) -> tuple[str, ...]:
    return tuple(" ".join(item.split()) for item in text.split(";") if item.strip())


SCIENCE = _items("""
photosynthesis; gravity; plate tectonics; the water cycle; how vaccines work; black holes; DNA;
evolution; the greenhouse effect; electricity; magnetism; atoms; the periodic table; volcanoes;
earthquakes; tides; the immune system; how the heart pumps; digestion; the nervous system; sleep;
bacteria and viruses; antibiotics; enzymes; osmosis; the speed of sound; light and colour;
rainbows; lightning; the northern lights; comets; the phases of the moon; eclipses; the life of a
star; the big bang; relativity; quantum mechanics; radioactivity; nuclear fusion; thermodynamics;
friction; buoyancy; how aeroplanes fly; sonar; lasers; lenses; mirrors; batteries; photovoltaics;
wind turbines; hydroelectric dams; fossil fuels; acid rain; the ozone layer; coral reefs;
rainforests; deserts; glaciers; ocean currents; the food chain; pollination; hibernation;
migration of birds; camouflage; fermentation; crystals; soil; composting; the carbon cycle; genes
and heredity; stem cells; hormones; memory; the five senses; allergies; fever; muscles; bones
""")
TECHNOLOGY = _items("""
the internet; search engines; cloud computing; machine learning; neural networks; databases;
encryption; passwords; blockchain; operating systems; compilers; version control; web browsers;
email; GPS; touch screens; microchips; transistors; 3D printing; robots; drones; electric cars;
smartphones; Wi-Fi; Bluetooth; fibre optics; satellites; virtual reality; speech recognition;
computer viruses; firewalls; data compression; image formats; APIs; load balancing; caching;
recursion; sorting algorithms; hash tables; binary numbers; object-oriented programming;
functional programming; unit tests; containers; microservices; open source software; QR codes;
recommendation systems; language models; autonomous vehicles; smart thermostats; steam engines;
the printing press; refrigerators; microwave ovens; elevators; bicycles; clocks; the telegraph
""")
SOCIETY = _items("""
democracy; inflation; supply and demand; the stock market; taxes; insurance; mortgages; budgets;
the Roman Empire; ancient Egypt; the Renaissance; the Industrial Revolution; the French
Revolution; the Silk Road; the Vikings; the Cold War; the space race; the Olympic Games; the
invention of writing; the Magna Carta; constitutions; human rights; the United Nations; trade
unions; public libraries; museums; jazz; opera; impressionism; photography; cinema; theatre;
the novel; poetry; myths; folk tales; chess; football; marathon running; yoga; meditation;
gardening; cooking; baking bread; tea; coffee; chocolate; spices; vegetarian food; fashion;
architecture; city planning; public transport; recycling; volunteering; education; homework;
remote work; teamwork; leadership; negotiation; public speaking; time management; friendship;
kindness; stress; exercise; healthy eating; first aid; saving money; job interviews; tourism
""")
TOPICS = SCIENCE + TECHNOLOGY + SOCIETY
CODE_TASKS = _items("""
reverses a string; checks whether a number is prime; computes the factorial of n; merges two
sorted lists; counts the words in a text; finds the largest element of a list; removes duplicates
from a list; checks whether a string is a palindrome; computes the Fibonacci numbers; sorts a list
of numbers; does a binary search; counts vowels; converts Celsius to Fahrenheit; sums the digits
of a number; finds the second largest value; transposes a matrix; flattens a nested list; reads a
CSV file; writes lines to a file; parses a JSON document; groups words by their first letter;
computes the greatest common divisor; generates a random password; validates an email address;
computes the average of a list; finds the longest word; rotates a list by k places; counts how
often each character occurs; checks whether two words are anagrams; computes powers without the
power operator; implements a stack; implements a queue; inserts into a linked list; reverses a
linked list; walks a binary tree in order; finds the shortest path in a graph; computes compound
interest; prints a multiplication table; converts a number to binary; converts Roman numerals to
integers; splits a list into chunks; zips two lists into a dictionary; inverts a dictionary;
measures how long a call takes; retries a failing call; caches results; logs messages to a file;
downloads a web page; counts lines in a file; finds all files with a given extension; draws a
triangle of stars; plays rock, paper, scissors; guesses a secret number; simulates rolling dice;
shuffles a deck of cards; formats a date; computes the days between two dates; capitalises each
word; replaces every second letter; encodes a message with a Caesar cipher; compresses a string
by run lengths; checks balanced brackets; computes the median; computes the standard deviation
""")
LANGUAGES = _items("Python; Python; Python; JavaScript; Java; C; C++; Go; Rust; Ruby; TypeScript")
FIRST = _items("""
Anna; Ben; Clara; David; Elena; Farid; Grace; Henry; Ines; Jonas; Karim; Laura; Marco; Nadia;
Oscar; Priya; Quentin; Rosa; Samuel; Tara; Umar; Vera; Walter; Xenia; Yusuf; Zoe; Amir; Bella;
Carlos; Diana; Emil; Fatima; George; Hana; Ivan; Julia; Kofi; Lena; Mateo; Nora; Olga; Peter
""")
LAST = _items("""
Abbott; Becker; Costa; Dupont; Eriksen; Fischer; Garcia; Hughes; Ito; Jansen; Khan; Lopez;
Martin; Novak; Okafor; Patel; Quinn; Rossi; Silva; Tanaka; Usman; Vogel; Wagner; Young; Zhang
""")
CITIES = _items("""
Lisbon; Vienna; Nairobi; Toronto; Osaka; Dublin; Cairo; Lima; Prague; Seoul; Chicago; Marseille;
Glasgow; Antwerp; Boston; Hanoi; Accra; Oslo; Bergen; Porto; Milan; Geneva; Denver; Perth; Quito
""")
COUNTRIES = _items("""
France; Japan; Brazil; Kenya; Canada; Norway; Egypt; India; Mexico; Spain; Italy; Greece; Peru;
Australia; Morocco; Vietnam; Ireland; Turkey; Chile; Poland; Portugal; Thailand; South Africa
""")
JOBS = _items("""
teacher; nurse; carpenter; software engineer; baker; pilot; librarian; gardener; journalist;
chemist; plumber; architect; photographer; chef; farmer; lawyer; dentist; electrician; musician;
translator; accountant; mechanic; florist; postman; sailor; tailor; beekeeper; geologist
""")
GOODS = _items("""
desk lamp; notebook; backpack; coffee maker; bicycle pump; rain jacket; headphones; tent; kettle;
office chair; water bottle; camera strap; phone case; keyboard; board game; frying pan; pillow;
pair of boots; wall clock; garden hose; sleeping bag; monitor; blender; suitcase; alarm clock
""")
CREATURES = _items("""
dragon; fox; old sailor; robot; lighthouse keeper; little owl; clockmaker; turtle; young witch;
lost astronaut; talking cat; shy bear; wandering knight; curious mouse; snowman; paper boat;
retired detective; baker's daughter; blind musician; stubborn donkey; forgotten king; whale
""")
SETTINGS = _items("""
in a village by the sea; on a snowy mountain; in an empty library; on a night train; under a
bridge; in a desert town; on the far side of the moon; in a garden behind a wall; in a crowded
market; at the bottom of a lake; in a city without clocks; on a small island; in a deep forest
""")
FEELINGS = _items("""
nervous before an exam; tired after work; bored at home; homesick; unsure what to cook; stuck with
a hard decision; excited about a trip; annoyed with a neighbour; worried about money; lonely in a
new city; proud of a finished project; unable to fall asleep; behind with my reading; out of ideas
for a birthday present; afraid of flying; new to this job; late with a report; learning to swim
""")
PLAIN_SENTENCES = _items("""
The shop opens at nine in the morning; I would like a cup of tea, please; Where is the nearest
train station?; My sister lives in a small town; The weather is beautiful today; We are going to
the beach tomorrow; He forgot his keys at home; She has been learning to play the piano; The book
is on the kitchen table; Can you help me carry this bag?; The children are playing in the garden;
I have never seen such a tall tree; They arrived late because of the snow; This restaurant is too
expensive for us; My brother wants to become a doctor; The meeting starts in ten minutes; Please
close the window, it is cold; I lost my umbrella on the bus; The museum is closed on Mondays; You
should drink more water; How much does this jacket cost?; The cat is sleeping under the chair; We
need to buy bread and milk; My phone is not working; The concert was wonderful; I will call you
when I get home; The road is blocked by a fallen tree; Her office is on the third floor; Good
friends are hard to find; The soup needs a little more salt; Our teacher is very patient
""")
TONGUES = _items("French; French; Spanish; Spanish; German; German; Italian; Portuguese; Dutch")
FOODS = _items("""
tomato soup; pancakes; lentil stew; apple pie; fried rice; vegetable curry; banana bread; pizza
dough; potato salad; omelettes; mushroom risotto; hummus; oat cookies; roast chicken; noodles
with peanut sauce; fish tacos; pumpkin muffins; rice pudding; chilli; a simple green salad
""")
FIGURES = _items("""
Marie Curie; Isaac Newton; Ada Lovelace; Leonardo da Vinci; Nelson Mandela; Charles Darwin; Jane
Austen; William Shakespeare; Mozart; Cleopatra; Galileo; Florence Nightingale; Alan Turing; Frida
Kahlo; Mahatma Gandhi; Nikola Tesla; Amelia Earhart; Johannes Gutenberg; Aristotle; Confucius
""")
OCCASIONS = _items("""
a delayed parcel; a dentist appointment; a broken heater; a wedding; a job offer; a noisy flat; a
lost library book; a school trip; a team lunch; a refund; a missed deadline; a farewell party; a
late invoice; a change of address; a conference talk; a birthday; a parking permit; an internship
""")
WEEKDAYS = _items("Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday")
MONTHS = _items("""
January; February; March; April; May; June; July; August; September; October; November; December
""")
STYLES = _items("""
friendly; formal; funny; very short; old-fashioned; cheerful; dry; poetic; matter-of-fact; warm
""")
VERDICTS = _items("""
broke after two days; is better than I had hoped; arrived late but works; smells strange; does its
job; looks nothing like the picture; was a gift and she loves it; is too small for me; is worth
every cent; came without a manual; has lasted three years; makes an awful noise; is fine, I guess
""")
CHORES = _items("""
painting a room; planting tomatoes; changing a bicycle tyre; packing for a hike; setting up a new
laptop; cleaning an oven; writing a CV; moving house; learning to juggle; building a bird house;
backing up photos; hosting a dinner; training a puppy; knitting a scarf; fixing a dripping tap;
starting a blog; growing herbs indoors; ironing a shirt; organising a desk; making candles
""")
COMMANDS = _items("""
list files by size; find a word in many files; count the lines of a file; undo the last commit;
merge two branches; rename many files at once; show free disk space; kill a hanging process; copy
a folder to another machine; schedule a job every night; compare two files; unpack an archive;
change the owner of a file; watch a log file grow; create a virtual environment; install a package
""")
