"""Families of distillation prompts with work to do: code, passages, records, languages."""

import random

import distill_words as words
from distill_words import any_of

# --- code -------------------------------------------------------------------------------------


def code(rng: random.Random) -> str:
    task, language = rng.choice(words.CODE_TASKS), rng.choice(words.LANGUAGES)
    return any_of(
        rng,
        f"{language}: some code that {task}.",
        f"In {language}, show me a short program that {task}, with comments.",
        f"I need {language} code which {task}. Code only.",
        f"Give a {language} solution that {task}, then describe how it works.",
        f"# {language}\n# This function {task}.\n",
        f"Homework in {language}: something that {task}. Include a usage example.",
    )


SNIPPETS = (
    "def f(xs):\n    return [x * {n} for x in xs if x > {m}]",
    "total = 0\nfor i in range({n}):\n    total += i * {m}\nprint(total)",
    "def g(a, b={n}):\n    if a > b:\n        return a - b\n    return b - a",
    "words = text.split()\ncounts = {{}}\nfor w in words:\n    counts[w] = counts.get(w, 0) + {n}",
    (
        "class Box:\n    def __init__(self, size={n}):\n        self.size = size\n\n"
        "    def grow(self):\n        self.size += {m}"
    ),
    "while n != 1:\n    n = n // 2 if n % 2 == 0 else {n} * n + 1",  # a template
    "const names = users.filter(u => u.age > {n}).map(u => u.name);",
    "for (int i = 0; i < {n}; i++) {{\n    sum += values[i] * {m};\n}}",
    "SELECT name, price FROM items WHERE price > {n} ORDER BY price LIMIT {m};",
    "try:\n    value = int(text)\nexcept ValueError:\n    value = {n}",
)


def read_code(rng: random.Random) -> str:
    snippet = rng.choice(SNIPPETS).format(n=rng.randint(2, 60), m=rng.randint(2, 20))
    return any_of(
        rng,
        f"Line by line, what happens here?\n\n{snippet}",
        f"{snippet}\n\nAdd comments to the code above.",
        f"{snippet}\n\nRename the variables so that a reader understands, and keep the rest.",
        f"Could this be shorter or clearer?\n\n{snippet}",
        f"Put it in a function and add a docstring:\n{snippet}",
    )


def tools(rng: random.Random) -> str:
    pair = rng.choice(words.COMMANDS)
    return any_of(
        rng,
        f"{pair}: which command does that, and which options matter?",
        f"On the Linux command line, {pair}.",
        f"Common errors around {rng.choice(words.TECHNOLOGY)} and their remedies.",
    )


# --- texts to work on -------------------------------------------------------------------------


def passage(rng: random.Random) -> str:
    """A paragraph with names, places and numbers that an answer can only get by copying."""
    who = f"{rng.choice(words.FIRST)} {rng.choice(words.LAST)}"
    job, city, topic = rng.choice(words.JOBS), rng.choice(words.CITIES), rng.choice(words.TOPICS)
    sentences = [
        (
            f"{who}, a {job} from {city}, has spent {rng.randint(3, 30)} years "
            f"thinking about {topic}."
        ),
        f"The project on {topic} was started in {rng.randint(1950, 2020)} by a group in {city}.",
        f"About {rng.randint(2, 90) * 10} people took part, most of them volunteers.",
        f"According to {who}, the hardest part was finding enough money.",
        (
            f"It cost {rng.randint(2, 80) * 1000} euros, "
            f"{rng.randint(5, 60)} percent more than planned."
        ),
        f"A second group, led by {rng.choice(words.FIRST)} {rng.choice(words.LAST)}, disagreed.",
        (
            f"Next {rng.choice(words.MONTHS)} the results will be shown "
            f"in {rng.choice(words.CITIES)}."
        ),
        f"Critics say that {rng.choice(words.TOPICS)} deserves more attention.",
        "Nobody expected it to work at the first attempt, and it did not.",
        f"Visitors can see everything on {rng.choice(words.WEEKDAYS)}s, free of charge.",
    ]
    kept = sorted(rng.sample(range(len(sentences)), rng.randint(4, 6)))
    return " ".join(sentences[index] for index in kept)


def shorten(rng: random.Random) -> str:
    text = passage(rng)
    return any_of(
        rng,
        f"Text:\n{text}\n\nThe gist in one sentence?",
        f"Boil this down to its essence: {text}",
        f"{text}\n\nTL;DR",
        f"Key points of the text below, as a list.\n\n{text}",
        f"Find a headline and a two-line teaser for this article. {text}",
        f"Make it half as long without losing facts:\n{text}",
        f"Abstract, {rng.randint(20, 50)} words at most, of: {text}",
    )


def rewrite(rng: random.Random) -> str:
    text = passage(rng)
    style = rng.choice(words.STYLES)
    return any_of(
        rng,
        f"Say the same in a {style} tone: {text}",
        f"{text}\n\nRetell this {style} and in the first person.",
        f"Copy the next paragraph word for word. {text}",
        f"Put this into the past tense and change nothing else:\n{text}",
        f"Repeat after me: {text}",
    )


def question(rng: random.Random) -> str:
    text = passage(rng)
    return any_of(
        rng,
        f"Context: {text}\n\nQuestion: who is mentioned, and what did they do?\nAnswer:",
        f"{text}\n\nGoing by the text, how much did it cost and how many people took part?",
        f"Text: {text}\n\nAsk three questions about it and answer them from the text.",
        f"{text}\n\nTrue or false: the project failed? Quote the sentence that tells.",
    )


def record_text(rng: random.Random) -> str:
    """A small order, visit or contact in running text."""
    first, last, city = rng.choice(words.FIRST), rng.choice(words.LAST), rng.choice(words.CITIES)
    mail = f"{first.lower()}.{last.lower()}@example.{rng.choice(('com', 'org', 'net'))}"
    item, day = rng.choice(words.GOODS), f"{rng.randint(1, 28)} {rng.choice(words.MONTHS)}"
    return any_of(
        rng,
        f"{first} {last} ({mail}) bought a {item} for ${rng.randint(5, 300)} on {day}.",
        f"On {day} {first} {last} from {city} ordered {rng.randint(2, 9)} of our {item}s; "
        f"reach them at {mail}.",
        f"Invoice {rng.randint(1000, 9999)}: {item}, {rng.randint(5, 300)}.50 EUR, to be sent to "
        f"{first} {last}, {rng.randint(1, 99)} Mill Lane, {city}, by {day}.",
        f"Hello, {first} {last} here. The {item} I got on {day} is broken, please write to {mail}.",
    )


def pick_out(rng: random.Random) -> str:
    text = " ".join(record_text(rng) for _ in range(rng.randint(1, 3)))
    return any_of(
        rng,
        f"{text}\n\nName, date and item as JSON.",
        f"Turn into a table with columns name | item | date:\n{text}",
        f"Every email address in here, one per line. {text}",
        f"Message: {text}\nFields wanted: person, city, product, price. Use key: value lines.",
        f"{text}\nWhich people and which places occur?",
        f'Fill this in: {{"name": "", "item": "", "day": ""}} from: {text}',
    )


def tidy(rng: random.Random) -> str:
    names = rng.sample(words.FIRST, rng.randint(5, 9))
    rows = [f"{name}, {rng.randint(18, 80)}, {rng.choice(words.CITIES)}" for name in names]
    listed, table = ", ".join(names), "\n".join(rows)
    return any_of(
        rng,
        f"Sort from A to Z: {listed}",
        f"One per line and numbered, keeping the order: {listed}",
        f"As a Markdown table with the columns name, age, city:\n{table}",
        f"Write these rows as JSON objects.\n{table}",
        f"{table}\n\nWho is the oldest here? And who lives where?",
        f"Rows:\n{table}\nTurn each row into a full sentence.",
    )


def sort_into(rng: random.Random) -> str:
    verdict = rng.choice(words.VERDICTS)
    item = rng.choice(words.GOODS)
    return any_of(
        rng,
        f"Positive, negative or neutral? 'The {item} {verdict}.' Give the reason, too.",
        f"Customer: 'My {item} {verdict}.' Compose our reply.",
        f"Group by kind: {', '.join(rng.sample(words.FOODS + words.GOODS + words.JOBS, 9))}",
        f"'The {item} {verdict}.' Make a longer review out of it.",
    )


# --- languages --------------------------------------------------------------------------------


def translate(rng: random.Random) -> str:
    tongue = rng.choice(words.TONGUES)
    some = " ".join(_sentence(rng) for _ in range(rng.randint(1, 3)))
    return any_of(
        rng,
        f"{tongue}, please: {some}",
        f"How would one say this in {tongue}? {some}",
        f"English: {some}\n{tongue}:",
        f"Into {tongue}: {some} Then comment on each word.",
    )


def _sentence(rng: random.Random) -> str:
    text = rng.choice(words.PLAIN_SENTENCES)
    return text if text.endswith("?") else f"{text}."


def phrases(rng: random.Random) -> str:
    tongue = rng.choice(words.TONGUES)
    return any_of(
        rng,
        f"{rng.randint(5, 12)} {tongue} phrases for travellers, with the English beside them.",
        f"{tongue} words around {rng.choice(('food', 'family', 'travel', 'work', 'home'))}.",
        f"Count from {rng.randint(1, 5)} to {rng.randint(9, 20)} in {tongue}.",
        f"A tiny dialogue in {tongue} at the market, English underneath.",
    )


def grammar(rng: random.Random) -> str:
    sentence = _sentence(rng)
    return any_of(
        rng,
        f"Any mistakes in this? {_spoil(rng, sentence)}",
        f"{sentence} Five other ways to put it.",
        f"Past, present and future of: {sentence}",
        f"Nouns and verbs of the sentence '{sentence}'",
        f"{sentence} Carry on from here.",
    )


def _spoil(rng: random.Random, sentence: str) -> str:
    parts = sentence.split()
    index = rng.randrange(len(parts) - 1)
    parts[index], parts[index + 1] = parts[index + 1], parts[index]
    return " ".join(parts)
