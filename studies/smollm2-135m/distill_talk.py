"""Families of distillation prompts without a text: talk, explanations, stories, lists."""

import random

import distill_words as words
from distill_words import any_of

# --- chat, opinion, advice --------------------------------------------------------------------


def mood(rng: random.Random) -> str:
    feeling = rng.choice(words.FEELINGS)
    return any_of(
        rng,
        f"Today I am {feeling}. Any thoughts?",
        f"So here I am, {feeling}, and it is only {rng.choice(words.WEEKDAYS)}. Cheer me up!",
        f"A friend of mine is {feeling}. How might one be of use?",
        f"Feeling {feeling} again. Talk to me for a bit.",
    )


def small_talk(rng: random.Random) -> str:
    topic = rng.choice(words.TOPICS)
    return any_of(
        rng,
        f"Do you like {topic}? Be honest.",
        f"Somebody at dinner kept talking about {topic}. Should I care?",
        (
            f"Between {topic} and {rng.choice(words.TOPICS)}, "
            "which one deserves an evening of reading?"
        ),
        f"Let us chat about {topic} for a minute.",
        f"{topic.capitalize()}: overrated or underrated?",
    )


def first_steps(rng: random.Random) -> str:
    topic = rng.choice(words.SOCIETY + words.TECHNOLOGY)
    return any_of(
        rng,
        f"Beginner here, zero experience with {topic}; where does one begin?",
        f"Offer some hard-won advice on {topic}.",
        f"Which mistakes do newcomers to {topic} make, and how are they avoided?",
        f"As a {rng.choice(words.JOBS)} I hear much about {topic}. Is it worth my while?",
    )


def roles(rng: random.Random) -> str:
    job, topic = rng.choice(words.JOBS), rng.choice(words.TOPICS)
    return any_of(
        rng,
        f"Pretend to be a {job} and talk about {topic}.",
        f"What would a {job} say about {topic}?",
        f"An ordinary day in the life of a {job} in {rng.choice(words.CITIES)}, please.",
        f"Why does the world need a good {job}?",
    )


# --- explanation and facts --------------------------------------------------------------------


def explain(rng: random.Random) -> str:
    topic = rng.choice(words.TOPICS)
    return any_of(
        rng,
        f"Topic: {topic}. Walk a newcomer through it.",
        f"{topic.capitalize()}, in plain language and with an example.",
        f"My grandmother asked about {topic}. Give me something I can tell her.",
        f"Teach {topic} to a class of {rng.randint(8, 16)}-year-olds.",
        f"Needed: a short encyclopedia entry on {topic}.",
        f"What is the main idea behind {topic}, and why did it catch on?",
        f"Tell me about {topic} and its history.",
    )


def aspects(rng: random.Random) -> str:
    topic = rng.choice(words.TOPICS)
    return any_of(
        rng,
        f"Benefits and drawbacks of {topic}, weighed fairly.",
        f"Which myths about {topic} refuse to die?",
        f"Speak about the future of {topic}.",
        f"How has {topic} changed everyday life?",
        f"Key terms one meets when studying {topic}, each with a definition.",
        f"The causes and the effects of {topic}.",
    )


def versus(rng: random.Random) -> str:
    group = rng.choice((words.SCIENCE, words.TECHNOLOGY, words.SOCIETY))
    one, other = rng.sample(group, 2)
    return any_of(
        rng,
        f"{one.capitalize()} versus {other}: set the two side by side.",
        f"How do {one} and {other} relate to each other?",
        f"In which ways are {one} and {other} alike, and in which do they differ?",
    )


def figures(rng: random.Random) -> str:
    name = rng.choice(words.FIGURES)
    return any_of(
        rng,
        f"Life and work of {name}.",
        f"Imagine {name} giving a radio interview and write down the first minutes.",
        f"For what do we remember {name}?",
        f"A timeline of {name}, with years.",
    )


def places(rng: random.Random) -> str:
    place = rng.choice(words.CITIES + words.COUNTRIES)
    return any_of(
        rng,
        f"Spending {rng.randint(2, 6)} days in {place}: sketch an itinerary.",
        f"{place} for people who have never been there.",
        f"What do people eat in {place}?",
        f"Neighbouring countries, language and money of {rng.choice(words.COUNTRIES)}?",
        f"When in the year is a visit to {place} most pleasant, and why?",
    )


# --- making things up -------------------------------------------------------------------------


def story(rng: random.Random) -> str:
    hero, where = rng.choice(words.CREATURES), rng.choice(words.SETTINGS)
    name = rng.choice(words.FIRST)
    return any_of(
        rng,
        f"A tale of a {hero} {where}.",
        f"{name} met a {hero} {where}. Go on.",
        f"Bedtime, please: something gentle with a {hero}.",
        f"Begin with 'Nobody believed the {hero}' and continue.",
        f"A {hero} and a {rng.choice(words.CREATURES)} quarrel {where}. Their conversation:",
        f"Invent a fable about a {hero} that ends with a moral.",
    )


def verse(rng: random.Random) -> str:
    about = rng.choice(words.TOPICS + words.FOODS + words.CITIES)
    return any_of(
        rng,
        f"Some rhymes on {about}.",
        f"{about.capitalize()} as a haiku, then as a limerick.",
        f"Lyrics for a song called '{about.title()}'.",
        f"Four lines of verse for a {rng.choice(words.JOBS)} who loves {about}.",
    )


def letter(rng: random.Random) -> str:
    name, about = rng.choice(words.FIRST), rng.choice(words.OCCASIONS)
    return any_of(
        rng,
        f"Draft me a note to {name} about {about}.",
        f"Dear {name}, it is about {about} that I write. Finish my letter.",
        f"{rng.choice(words.STYLES).capitalize()} mail to {name} {rng.choice(words.LAST)}; "
        f"subject: {about}.",
        f"Polite reminder to a {rng.choice(words.JOBS)} because of {about}.",
        f"Speech, one minute, on the occasion of {about}.",
    )


def advert(rng: random.Random) -> str:
    item = rng.choice(words.GOODS)
    return any_of(
        rng,
        f"Sell me a {item} in {rng.randint(2, 5)} sentences.",
        f"Product page for a {item}: title, features, price.",
        f"Catchy slogans for a {item}.",
        f"Job advert: {rng.choice(words.JOBS)} in {rng.choice(words.CITIES)}, part time.",
    )


# --- lists, steps, numbers --------------------------------------------------------------------


def lists(rng: random.Random) -> str:
    topic, count = rng.choice(words.TOPICS), rng.randint(3, 10)
    return any_of(
        rng,
        f"{count} surprising facts on {topic}.",
        f"{count} questions and answers for a quiz on {topic}.",
        f"Book titles, {count} of them and all made up, on {topic}.",
        f"Outline for a talk on {topic}, {count} slides.",
        f"Checklist for somebody whose hobby is {topic}.",
        f"Name {count} things that come to mind at {topic}.",
    )


def steps(rng: random.Random) -> str:
    food, topic = rng.choice(words.FOODS), rng.choice(words.CHORES)
    return any_of(
        rng,
        f"Recipe: {food}, for {rng.randint(2, 8)}.",
        f"Step by step: {topic}.",
        f"Ingredients and tools for {food}?",
        f"Never did it before: {topic}. What is the order of things?",
        f"A weekly plan that leaves room for {topic}.",
    )


def sums(rng: random.Random) -> str:
    a, b, c = rng.randint(3, 99), rng.randint(2, 20), rng.randint(2, 12)
    name, item = rng.choice(words.FIRST), rng.choice(words.GOODS)
    return any_of(
        rng,
        f"{a} + {b} * {c} = ? Show the steps.",
        f"{name} has {a} apples, gives {b % a} away and buys {c} more. How many are left?",
        f"One {item} costs {b} dollars. What do {c} of them cost after {rng.randint(1, 5)}0% off?",
        f"Solve for x: {c}x + {b} = {a}",
        f"Driving {a * 5} km takes {c} hours. Average speed?",
        f"Area and perimeter of a rectangle, {a} m by {b} m.",
        f"Convert: {a} kilometres, {b} kilograms and {c} litres, to imperial units.",
    )


def patterns(rng: random.Random) -> str:
    start, step = rng.randint(1, 20), rng.randint(2, 9)
    row = ", ".join(str(start + step * index) for index in range(5))
    one, other = rng.sample(words.JOBS, 2)
    return any_of(
        rng,
        f"What comes next: {row}?",
        f"Riddle about a {one}, with its solution.",
        f"A {one} is to work as a {other} is to what? Reason about it.",
        f"If every {one} is a {other} and {rng.choice(words.FIRST)} is a {one}, what follows?",
        f"Count backwards from {start + 20} to {start}.",
        f"The months with their days, beginning in {rng.choice(words.MONTHS)}.",
    )
