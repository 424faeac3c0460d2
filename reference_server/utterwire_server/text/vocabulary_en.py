"""What the English normaliser knows by heart: currencies, units, abbreviations, symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "ABBREVIATIONS",
    "CURRENCIES",
    "HTML_TAGS",
    "LABELLED",
    "MAGNITUDES",
    "MONTH_NAMES",
    "NUMBERED",
    "REGNAL",
    "ROMAN_LEADERS",
    "STREETS",
    "SYMBOLS",
    "TITLES",
    "TOP_DOMAINS",
    "UNITS",
    "VERSIONED",
    "WEEKDAYS",
    "Currency",
]

#: One, several, one hundredth, several hundredths ("" where nobody counts hundredths).
Currency = tuple[str, str, str, str]

CURRENCIES: Final[Mapping[str, Currency]] = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "US$": ("U S dollar", "U S dollars", "cent", "cents"),
    "C$": ("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "CA$": ("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "A$": ("Australian dollar", "Australian dollars", "cent", "cents"),
    "AU$": ("Australian dollar", "Australian dollars", "cent", "cents"),
    "NZ$": ("New Zealand dollar", "New Zealand dollars", "cent", "cents"),
    "HK$": ("Hong Kong dollar", "Hong Kong dollars", "cent", "cents"),
    "S$": ("Singapore dollar", "Singapore dollars", "cent", "cents"),
    "R$": ("real", "reais", "centavo", "centavos"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "", ""),
    "￥": ("yen", "yen", "", ""),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "", ""),
    "₽": ("ruble", "rubles", "kopeck", "kopecks"),
    "₺": ("lira", "liras", "", ""),
    "₴": ("hryvnia", "hryvnias", "", ""),
    "₪": ("shekel", "shekels", "", ""),
    "₫": ("dong", "dong", "", ""),
    "₱": ("peso", "pesos", "centavo", "centavos"),
    "₿": ("bitcoin", "bitcoins", "", ""),
    "USD": ("U S dollar", "U S dollars", "cent", "cents"),
    "CAD": ("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "AUD": ("Australian dollar", "Australian dollars", "cent", "cents"),
    "GBP": ("pound", "pounds", "penny", "pence"),
    "EUR": ("euro", "euros", "cent", "cents"),
    "JPY": ("yen", "yen", "", ""),
    "CNY": ("yuan", "yuan", "", ""),
    "RMB": ("yuan", "yuan", "", ""),
    "INR": ("rupee", "rupees", "paisa", "paise"),
    "CHF": ("Swiss franc", "Swiss francs", "", ""),
    "SEK": ("Swedish krona", "Swedish kronor", "", ""),
    "NOK": ("Norwegian krone", "Norwegian kroner", "", ""),
    "DKK": ("Danish krone", "Danish kroner", "", ""),
    "MXN": ("Mexican peso", "Mexican pesos", "", ""),
    "BRL": ("real", "reais", "centavo", "centavos"),
    "KRW": ("won", "won", "", ""),
}

MAGNITUDES: Final[Mapping[str, str]] = {
    "thousand": "thousand",
    "million": "million",
    "billion": "billion",
    "trillion": "trillion",
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "mn": "million",
    "mln": "million",
    "MM": "million",
    "b": "billion",
    "B": "billion",
    "bn": "billion",
    "bln": "billion",
    "t": "trillion",
    "T": "trillion",
    "tn": "trillion",
    "trn": "trillion",
}


def _metric() -> dict[str, tuple[str, str]]:
    bases = {
        "m": ("meter", {"k": "kilo", "c": "centi", "m": "milli", "µ": "micro", "u": "micro"}),
        "g": ("gram", {"k": "kilo", "m": "milli", "µ": "micro"}),
        "l": ("liter", {"m": "milli", "c": "centi", "d": "deci"}),
        "L": ("liter", {"m": "milli", "µ": "micro"}),
        "s": ("second", {"m": "milli", "µ": "micro", "n": "nano"}),
        "Hz": ("hertz", {"k": "kilo", "M": "mega", "G": "giga", "T": "tera"}),
        "V": ("volt", {"k": "kilo", "m": "milli"}),
        "W": ("watt", {"k": "kilo", "M": "mega", "G": "giga", "m": "milli"}),
        "Wh": ("watt hour", {"k": "kilo", "M": "mega", "G": "giga", "T": "tera"}),
        "Pa": ("pascal", {"k": "kilo", "h": "hecto", "M": "mega"}),
        "cal": ("calorie", {"k": "kilo"}),
        "mol": ("mole", {"m": "milli"}),
    }
    units = {}
    for symbol, (name, prefixes) in bases.items():
        for prefix, spoken in {"": "", **prefixes}.items():
            one = spoken + name
            units[prefix + symbol] = (one, one if name == "hertz" else one + "s")
    return units


#: Symbol: one of it, several of it. In American spelling.
UNITS: Final[Mapping[str, tuple[str, str]]] = {
    **_metric(),
    "nm": ("nanometer", "nanometers"),
    "mA": ("milliamp", "milliamps"),
    "mAh": ("milliamp hour", "milliamp hours"),
    "kJ": ("kilojoule", "kilojoules"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "km/s": ("kilometer per second", "kilometers per second"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "kmh": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "m/s²": ("meter per second squared", "meters per second squared"),
    "mph": ("mile per hour", "miles per hour"),
    "mpg": ("mile per gallon", "miles per gallon"),
    "km²": ("square kilometer", "square kilometers"),
    "m²": ("square meter", "square meters"),
    "cm²": ("square centimeter", "square centimeters"),
    "m³": ("cubic meter", "cubic meters"),
    "cm³": ("cubic centimeter", "cubic centimeters"),
    "ft²": ("square foot", "square feet"),
    "cc": ("C C", "C C"),
    "ha": ("hectare", "hectares"),
    "mi": ("mile", "miles"),
    "ft": ("foot", "feet"),
    "in": ("inch", "inches"),
    "tsp": ("teaspoon", "teaspoons"),
    "tbsp": ("tablespoon", "tablespoons"),
    "yd": ("yard", "yards"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "yr": ("year", "years"),
    "yrs": ("year", "years"),
    "kB": ("kilobyte", "kilobytes"),
    "KB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "PB": ("petabyte", "petabytes"),
    "KiB": ("kibibyte", "kibibytes"),
    "MiB": ("mebibyte", "mebibytes"),
    "GiB": ("gibibyte", "gibibytes"),
    "MB/s": ("megabyte per second", "megabytes per second"),
    "GB/s": ("gigabyte per second", "gigabytes per second"),
    "kbps": ("kilobit per second", "kilobits per second"),
    "kbit/s": ("kilobit per second", "kilobits per second"),
    "Kbps": ("kilobit per second", "kilobits per second"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Mbit/s": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "dB": ("decibel", "decibels"),
    "rpm": ("R P M", "R P M"),
    "RPM": ("R P M", "R P M"),
    "fps": ("frame per second", "frames per second"),
    "px": ("pixel", "pixels"),
    "dpi": ("dot per inch", "dots per inch"),
    "psi": ("P S I", "P S I"),
    "ppm": ("part per million", "parts per million"),
    "hPa": ("hectopascal", "hectopascals"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
    "%": ("percent", "percent"),
    "‰": ("per mille", "per mille"),
    "bps": ("bit per second", "bits per second"),
    "pp": ("percentage point", "percentage points"),
    "sq ft": ("square foot", "square feet"),
}

MONTH_NAMES: Final[Mapping[str, int]] = {
    name: number
    for number, names in enumerate(
        (
            ("January", "Jan"),
            ("February", "Feb"),
            ("March", "Mar"),
            ("April", "Apr"),
            ("May",),
            ("June", "Jun"),
            ("July", "Jul"),
            ("August", "Aug"),
            ("September", "Sept", "Sep"),
            ("October", "Oct"),
            ("November", "Nov"),
            ("December", "Dec"),
        ),
        1,
    )
    for name in names
}

WEEKDAYS: Final[Mapping[str, str]] = {
    "Mon": "Monday",
    "Tue": "Tuesday",
    "Tues": "Tuesday",
    "Wed": "Wednesday",
    "Thu": "Thursday",
    "Thur": "Thursday",
    "Thurs": "Thursday",
    "Fri": "Friday",
    "Sat": "Saturday",
    "Sun": "Sunday",
}

#: Before a name. "Dr" and "St" after one are streets.
TITLES: Final[Mapping[str, str]] = {
    "Mr": "mister",
    "Mrs": "missus",
    "Ms": "miz",
    "Messrs": "messieurs",
    "Dr": "doctor",
    "Prof": "professor",
    "St": "saint",
    "Mt": "mount",
    "Ft": "fort",
    "Gov": "governor",
    "Sen": "senator",
    "Rep": "representative",
    "Gen": "general",
    "Col": "colonel",
    "Capt": "captain",
    "Lt": "lieutenant",
    "Sgt": "sergeant",
    "Cmdr": "commander",
    "Rev": "reverend",
    "Hon": "honorable",
    "Pres": "president",
}
STREETS: Final[Mapping[str, str]] = {
    "St": "street",
    "Dr": "drive",
    "Ave": "avenue",
    "Blvd": "boulevard",
    "Rd": "road",
    "Ln": "lane",
    "Hwy": "highway",
    "Pkwy": "parkway",
    "Sq": "square",
    "Ct": "court",
}
#: Always so, with a period after them.
ABBREVIATIONS: Final[Mapping[str, str]] = {
    "etc": "et cetera",
    "e.g": "for example",
    "eg": "for example",
    "i.e": "that is",
    "ie": "that is",
    "vs": "versus",
    "approx": "approximately",
    "dept": "department",
    "est": "established",
    "Jr": "junior",
    "Sr": "senior",
    "Inc": "incorporated",
    "Ltd": "limited",
    "Corp": "corporation",
    "Co": "company",
    "Bros": "brothers",
    "Univ": "university",
    "Ave": "avenue",
    "Blvd": "boulevard",
    "Rd": "road",
    "Hwy": "highway",
    "cf": "compare",
    "al": "al",
    "misc": "miscellaneous",
    "tel": "telephone",
    "temp": "temperature",
    "max": "maximum",
    "min": "minimum",
    "avg": "average",
    "govt": "government",
    "Mgr": "manager",
    "Asst": "assistant",
    "ext": "extension",
    "resp": "respectively",
    "incl": "including",
    "excl": "excluding",
}
#: Abbreviations that count something: only before a number.
NUMBERED: Final[Mapping[str, str]] = {
    "no": "number",
    "nos": "numbers",
    "nr": "number",
    "p": "page",
    "pp": "pages",
    "pg": "page",
    "vol": "volume",
    "vols": "volumes",
    "ch": "chapter",
    "chap": "chapter",
    "sec": "section",
    "sect": "section",
    "fig": "figure",
    "figs": "figures",
    "eq": "equation",
    "art": "article",
    "ver": "version",
    "v": "version",
    "ed": "edition",
    "ext": "extension",
    "apt": "apartment",
    "ste": "suite",
    "rm": "room",
    "c": "circa",
    "ca": "circa",
}

#: A number with points after one of these is a version.
VERSIONED: Final = frozenset(
    "version versions v ver release releases update python node nodejs java php ruby perl "
    "django rails react vue angular ios ipados android macos osx ubuntu debian fedora linux kernel "
    "windows chrome firefox safari postgres postgresql mysql sqlite redis cuda pytorch torch "
    "tensorflow numpy kubernetes docker gpt claude llama gemini kokoro usb http tls".split()
)

#: A number after one of these is a name, read in short: "Room one oh one".
LABELLED: Final = frozenset(
    "room flight highway route interstate bus gate boeing airbus suite apartment apt hwy rm".split()
)

#: A Roman numeral after one of these is a number ...
ROMAN_LEADERS: Final = frozenset(
    "chapter part volume book act scene section war type phase title article class bowl fantasy "
    "stage appendix figure table grade tier level episode season option group game mark apollo "
    "rocky world".split()
)
#: ... and after one of these the number of a ruler.
REGNAL: Final = frozenset(
    "Henry Louis Elizabeth George Edward Charles James William Richard Philip Paul Pius Benedict "
    "John Napoleon Catherine Nicholas Alexander Frederick Leo Gregory Ramses Ptolemy Francis "
    "Ferdinand Otto Wilhelm Peter Mary Clement Innocent Urban Boniface Ivan Darius Xerxes "
    "Harald Christian Gustav Haakon Albert Leopold Rainier Felipe Juan Carlos".split()
)

SYMBOLS: Final[Mapping[str, str]] = {
    "&": "and",
    "@": "at",
    "+": "plus",
    "=": "equals",
    "%": "percent",
    "‰": "per mille",
    "°": "degrees",
    "×": "times",
    "÷": "divided by",
    "±": "plus or minus",
    "≈": "approximately",
    "≠": "is not equal to",
    "≤": "is at most",
    "≥": "is at least",
    "√": "square root of",
    "∞": "infinity",
    "∑": "sum",
    "∫": "integral",
    "∆": "delta",
    "©": "copyright",
    "§": "section",
    "¶": "paragraph",
    "½": "one half",
    "$": "dollar",
    "£": "pound",
    "€": "euro",
    "¥": "yen",
    "¢": "cents",
    "₹": "rupee",
    "µ": "micro",
    "²": "squared",
    "³": "cubed",
    "№": "number",
    "→": "to",
    "Ω": "ohms",
}

TOP_DOMAINS: Final = frozenset(
    "com org net edu gov mil int info biz io ai dev app co uk us ca au de fr jp cn in it es eu ch "
    "nl se no fi pl ru br me tv ly gg xyz tech cloud online site blog news".split()
)

HTML_TAGS: Final = frozenset(
    "a abbr b blockquote br code div em h1 h2 h3 h4 h5 h6 hr i img kbd li mark ol p pre s small "
    "span strong sub sup table tbody td th thead tr u ul".split()
)
