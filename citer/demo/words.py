"""The words of the embedded questions. All are common, so that each is one token."""

# ruff: noqa: SIM905 - split texts stay readable where list literals would run over pages
NAMES = (
    "Ada Amir Anna Ben Carl Clara Dina Emil Eva Finn Greta Hana Hugo Ida Ivan Jana "
    "Karl Lea Lina Marc Mia Nora Omar Otto Paul Rosa Sami Sara Tara Tom Vera Yann"
).split()

# Openings of sentences. They are equally likely and mean nothing.
OPENINGS = (
    "Again Also Besides Beyond Clearly Finally First Firstly Further Hence Here Indeed Later "
    "Likewise Look Meanwhile Moreover Next Note Now Plainly Second See Simply Still Surely Then "
    "Thus Today Truly Well Yet"
).split()

# Names of towns and goods have two words. A model must read both.
FIRSTS = (
    "amber black blue brown cold dark dry gold green grey old red silver warm white wild".split()
)
TOWN_SECONDS = (
    "Bank Bay Bridge Castle Creek Dale Field Ford Gate Harbor Haven Hill Lake Mill Port Rock"
).split()
GOOD_SECONDS = (
    "bags bells bottles bowls boxes candles chairs cups jars knives lamps mirrors pens plates "
    "ropes tables"
).split()

LANDS = (
    "Alba Arda Boria Calda Corvia Delta Doria Elba Fenia Galda Hestia Ionia Jura Kelda Lycia "
    "Medra Narva Olbia Parma Quira Rhona Sarda Tavia Umbra Valda Wexia Xenia Yorra Zadar Zelda "
    "Troja Sparta"
).split()
TWINS = (
    "apples axes beans belts brooms carrots cloaks drums eggs flutes gloves hammers hats kites "
    "leeks masks nails onions pans peas pins rings saws scarves shells shirts shoes socks spoons "
    "stones toys wheels"
).split()

# kind of thing -> (what people do with it, the things)
KINDS = {
    "fruit": ("eat", "bananas cherries figs grapes lemons melons pears plums".split()),
    "drink": ("drink", "cider cocoa coffee juice milk soda tea water".split()),
    "animal": ("keep", "cats cows dogs ducks goats horses pigs sheep".split()),
}
