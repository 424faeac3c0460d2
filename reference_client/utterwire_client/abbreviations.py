"""Shortened words, and the words that begin sentences after them, by language.

`sentencex` knows many abbreviations, but not what they stand before: "Inc. She" ends a sentence,
"Dr. She" does not. Words are in lower case here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

__all__ = [
    "AFTER_TIME",
    "ANNOUNCING",
    "COUNTRIES",
    "EXCLAIMING",
    "HESITATIONS",
    "HUMMED",
    "LETTERED",
    "OF_COUNTRY",
    "PRONOUNS",
    "SAINTS",
    "SMALL_STARTERS",
    "UNITS",
    "Abbreviations",
    "abbreviations",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Abbreviations:
    """The tables of one language, with what is common to all."""

    #: A name follows: "Dr." Only with a capital, for many are words as well.
    titles: frozenset[str] = frozenset()
    #: The sentence goes on, whatever follows: "e.g."
    going_on: frozenset[str] = frozenset()
    #: A number, or a letter that counts, may follow: "No."
    counting: frozenset[str] = frozenset()
    #: They may end a sentence: "Inc."; what follows tells.
    open: frozenset[str] = frozenset()
    #: Of `counting` and `open`, those that are also words: "no", "fig", "sun".
    words: frozenset[str] = frozenset()
    #: Words that begin sentences, and are no names.
    starters: frozenset[str] = frozenset()
    #: A number with a period is an ordinal: "Der 1. Mai".
    ordinals: bool = False
    #: Nouns have a capital, so that a capital tells nothing.
    capital_nouns: bool = False


_TITLES: Final = _words(
    """mr mrs ms mx dr drs prof gen sen rep gov capt cpt lt col sgt maj cmdr adm rev hon messrs
    mmes pres supt insp det fr br sr pvt cpl atty amb mt ft st ste
    geo wm chas jas thos jos"""
)
_GOING_ON: Final = _words(
    "e.g eg i.e ie vs v cf viz approx aprox incl excl esp resp ca feat w.r.t op"
)
_COUNTING: Final = _words(
    """no nos nr fig figs p pp vol vols ch chap chs sec secs art par para eq eqs tab app ver ext tel
    apt ste rm cat ref refs pg pgs pt pts n° nº § ed eds ser suppl fn"""
)
_OPEN: Final = _words(
    """etc inc corp co ltd llc bros jr sr esq ave blvd rd st ln dr hwy pkwy sq pl ct ter mt dept
    univ assn assoc intl natl govt mfg bldg est dist div
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun
    ft in lb lbs oz kg km cm mm ml min mins hr hrs sec secs yd yds mi sq qt gal pt mph kph max al
    ph.d ed.d b.a m.a b.s m.s b.sc m.sc m.b.a m.d j.d d.d.s ll.b r.n p.s
    ala ariz ark calif colo conn del fla ill ind kan kans ky mass md mich minn miss mo mont neb nev
    okla ont ore penn tenn tex va vt wash wis wyo"""
)
_WORDS: Final = _words(
    """no art par tab app cat ref ed in mar sun sat sec pt col gen fig ser max mon wed ala ark conn
    del ill ok me may ind mass miss wash ore pen st dist div min pl ext ver fri est mi"""
)
#: Kept apart from names: "Will", "Mark", "May" and the like are missing.
_ENGLISH_STARTERS: Final = _words(
    """i he she it we they you this that these those there here the a an my your his her its our
    their who what when where why how which whose if but and so or yet then now yes no not nor
    do does did don didn doesn is are am was were isn aren wasn weren can could would should shall
    couldn wouldn shouldn have has had haven hasn hadn won may might must
    please thanks thank sorry sure okay ok well oh hi hello hey welcome congratulations
    let lets
    for from in on at to by with without as after before during since until while when because
    although though however also still just only even once again maybe perhaps instead meanwhile
    therefore otherwise finally first second third next last later today tomorrow yesterday
    both each every all some many most much few several another other others any none nobody
    everyone everybody everything someone somebody something nothing anyone anybody anything
    take turn call try go check click open press say tell give make use choose pick visit see look
    wait come bring keep remember note ask send write read set put get add start stop find follow
    call enter type select tap press hold leave stay watch listen think imagine consider feel
    expect avoid never always sometimes often usually unfortunately luckily
    good great nice wow cool perfect right exactly absolutely definitely certainly sadly hopefully
    honestly basically actually apparently obviously clearly generally typically overall
    additionally furthermore moreover nevertheless nonetheless eventually recently currently soon
    earlier previously afterwards elsewhere nearby outside inside bye goodbye ciao hmm alright
    really very more such same too enough both either neither rather quite almost less two three
    four five six seven eight nine ten"""
)

# In English, but for what many languages share.
#: Sounds that are written without a vowel.
HUMMED: Final = _words("hmm hm mm mmm mhm shh sh psst pfft brr grr tsk zzz nth pls thx tbh")
#: Before an ellipsis they go on with what follows: "Well... I think so".
HESITATIONS: Final = _words(
    """well hmm hm um uh er erm ah oh mm mmm so and but äh ähm hmmm eh pues bueno euh"""
)
#: They begin a sentence after a question even where nothing has a capital.
SMALL_STARTERS: Final = _words(
    """i i'm it that this there we you what how why where when let yes no not is are can do"""
)
#: Names with an exclamation mark.
EXCLAIMING: Final = _words("yahoo jeopardy yum oklahoma")
#: At the beginning they announce what follows; elsewhere they may end a sentence.
ANNOUNCING: Final = _words("p.s p.p.s ps n.b nb")
#: They belong to the time before them: "5 p.m. Eastern".
AFTER_TIME: Final = _words(
    """monday tuesday wednesday thursday friday saturday sunday eastern pacific central mountain
    gmt utc est edt pst pdt cst cdt mst mdt cet cest bst ist january february march april june
    july august september october november december"""
)
#: After "St." these make it a saint.
SAINTS: Final = _words(
    """john paul louis petersburg mary michael patrick peter george james andrew helena helens
    lucia kitts thomas croix moritz tropez nicholas francis anne ann catherine catharines
    augustine bernard joseph mark matthew luke jude martin david charles cloud barts pancras
    albans andrews vincent ignatius benedict gallen denis germain clair claire elizabeth
    margaret stephen simon"""
)
#: They end a sentence often.
COUNTRIES: Final = _words("u.s u.s.a u.k e.u u.n u.a.e u.s.s.r")
#: What is of a country more often than it begins a sentence: "the U.S. Senate".
OF_COUNTRY: Final = _words(
    """government senate house congress president presidential secretary department treasury
    supreme district attorney army navy air marine marines coast national federal central bank
    open postal post customs capitol constitution constitutional state states mission security
    general ambassador embassy consulate forces military dollar dollars steel bureau office
    patent census forest geological fish food environmental olympic men women soccer virgin
    midwest east west north south northeast northwest southeast southwest territory territories
    citizen citizens representative representatives senator senators vice prime foreign home
    parliament commission council charter human high children"""
)
#: Their letter is no initial: "plan B", "vitamin C".
LETTERED: Final = _words(
    """plan vitamin option type grade point section hepatitis group part class team answer choice
    gate terminal level appendix exhibit building block unit zone room row size letter version
    figure table side track route line model variant category series step question case item
    door vitamins"""
)
#: After a number they end a sentence, where a sentence begins after them.
UNITS: Final = _words(
    """ft in lb lbs oz kg mg km cm mm ml cl dl min mins hr hrs sec secs yd yds mi sq qt gal pt
    mph kph tsp tbsp std sek stk mio mrd кг км см руб коп тыс млн млрд гг zł gr godz tys mln mld"""
)
#: What follows a title and is no name.
PRONOUNS: Final = _words("he she it they we i")

_LANGUAGES: Final = {
    "en": Abbreviations(
        frozenset(), frozenset(), frozenset(), frozenset(), _WORDS, _ENGLISH_STARTERS
    ),
    "de": Abbreviations(
        titles=_words("hr hrn fr frl fa dipl ing mag dres frhr"),
        going_on=_words(
            """z.b d.h u.a bzw ggf evtl inkl exkl zzgl vgl bspw sog insb i.d.r u.u m.e z.t u.ä o.ä
            s.o s.u i.a d.i bzgl gem lt allg ehem geb mind einschl ausschl urspr"""
        ),
        counting=_words("nr abs art kap bd tel abb s hausnr str aufl"),
        open=_words("usw etc v.chr n.chr mio mrd tsd std min sek jh jhd str geb u.v.m u.a.m"),
        words=_words("art in st"),
        starters=_words(
            """der die das den dem des ein eine einen er sie es ich du wir ihr man wer was wann wo
            warum wie welche welcher welches und aber oder doch denn dann danach nun jetzt ja nein
            nicht bitte danke ist sind war hat haben kann können soll wird werden wenn weil da dort
            hier heute morgen gestern auch nur noch so also mein dein sein unser bis bei mit für
            im in am um an auf aus nach vor zu zum zur"""
        ),
        ordinals=True,
        capital_nouns=True,
    ),
    "fr": Abbreviations(
        titles=_words("m mm mme mmes mlle mlles dr drs pr me mgr st ste"),
        going_on=_words("p.ex ex env c.-à-d cf av apr"),
        counting=_words("n° nº art chap vol p pp fig tél bd"),
        open=_words("etc av bd janv févr avr juil sept oct nov déc j.-c min max"),
        words=_words("art me"),
        starters=_words(
            """le la les un une des ce cette ces il elle on nous vous ils elles je tu c'est ça qui
            que quoi où quand comment pourquoi et mais ou donc or ni car puis alors oui non merci
            est son sa ses mon ma mes notre votre leur dans pour avec sans sur en à au aux de du
            si ensuite enfin voilà voici c d j l m n qu s t"""
        ),
    ),
    "es": Abbreviations(
        titles=_words("sr sra srta srs sres dr dra don d prof profa lic ing arq gral cnel sta sto"),
        going_on=_words("p.ej ej aprox atte ud uds vd vds ee fco"),
        counting=_words("pág págs núm nº art cap vol tel av avda c fig"),
        open=_words("etc uu ee.uu a.c d.c s.a depto avda min máx"),
        words=_words("art don"),
        starters=_words(
            """el la los las un una unos unas él ella ello ellos ellas yo tú usted nosotros eso esto
            esta este estos y pero o que qué quién cuándo dónde cómo por para con sin en a al de
            del se si sí no también además luego después entonces hoy mañana ayer gracias es son
            está hay su sus mi mis su nuestro"""
        ),
    ),
    "it": Abbreviations(
        titles=_words(
            """sig sigg sig.ra sig.na dott dott.ssa prof prof.ssa avv ing geom on sen rag egr gent
            arch dr"""
        ),
        going_on=_words("p.es es ca cfr"),
        counting=_words("pag pagg art cap vol tel nr fig"),
        open=_words("ecc etc a.c d.c s.p.a s.r.l min max"),
        words=_words("art es on"),
        starters=_words(
            """il lo la i gli le un uno una egli ella lui lei noi voi loro io tu questo questa
            quello e ma o che chi cosa quando dove come perché per con senza in a di da se sì no
            anche poi allora oggi domani ieri grazie è sono c ci si suo mio l d un"""
        ),
    ),
    "pt": Abbreviations(
        titles=_words("sr sra srta srs dr dra drs prof profa eng exmo exma arq d"),
        going_on=_words("ex p.ex aprox"),
        counting=_words("pág págs núm nº n.º art cap vol tel av fig"),
        open=_words("etc a.c d.c s.a ltda min máx"),
        words=_words("art"),
        starters=_words(
            """o a os as um uma ele ela eles elas eu tu você nós isso isto este esta e mas ou que
            quem quando onde como por para com sem em no na de do da se sim não também depois
            então hoje amanhã ontem obrigado é são está há seu sua meu minha"""
        ),
    ),
    "nl": Abbreviations(
        titles=_words("dhr mevr mw drs ir ing prof dr mr ds"),
        going_on=_words("bijv bv o.a d.w.z m.b.t evt incl excl t.a.v vgl nl zgn m.a.w i.p.v"),
        counting=_words("nr blz art tel hfst"),
        open=_words("enz etc jl min max"),
        words=_words("art"),
        starters=_words(
            """de het een hij zij ze wij we jij je u ik dit dat deze die er en maar of dus want dan
            nu ja nee niet wie wat wanneer waar waarom hoe als ook nog op in met voor van"""
        ),
    ),
    "ru": Abbreviations(
        titles=_words("г-н г-жа проф акад доц им"),
        going_on=_words("т.е т.к напр см ср"),
        counting=_words("стр рис гл ул д кв п тел табл"),
        open=_words("т.д т.п др пр руб коп тыс млн млрд гг вв"),
        words=_words("им"),
        starters=_words(
            """он она оно они я ты мы вы это этот эта эти тот та те в на с к по из и а но или да нет
            не что кто когда где как почему если потом затем теперь сегодня завтра вчера"""
        ),
    ),
    "pl": Abbreviations(
        titles=_words("dr mgr inż prof hab ks św"),
        going_on=_words("np tzn tj m.in ok tzw ww"),
        counting=_words("nr str ul al godz pl tel rys tab"),
        open=_words("itd itp etc r w zł gr tys mln mld"),
        words=_words("ok al"),
        starters=_words(
            """on ona ono oni one ja ty my wy to ten ta te i a ale lub tak nie co kto kiedy gdzie
            jak dlaczego jeśli potem teraz dziś jutro wczoraj w na z do po"""
        ),
        ordinals=True,
    ),
    "hi": Abbreviations(
        titles=_words("डॉ डा श्री श्रीमती कु प्रो पं मो सु"),
        counting=_words("सं नं पृ"),
    ),
    "sv": Abbreviations(
        titles=_words("dr prof"),
        going_on=_words("t.ex bl.a dvs t.o.m fr.o.m s.k d.v.s ca f.d"),
        counting=_words("nr kl s tel kap"),
        open=_words("osv etc m.m m.fl"),
        starters=_words("han hon den det de vi jag du ni och men så nu ja nej vad vem när var hur"),
    ),
    "da": Abbreviations(
        titles=_words("dr prof hr fr"),
        going_on=_words("f.eks bl.a dvs ca inkl ekskl"),
        counting=_words("nr kl s tlf"),
        open=_words("osv etc mv m.m"),
        starters=_words("han hun den det de vi jeg du og men så nu ja nej hvad hvem når hvor"),
        ordinals=True,
    ),
    "tr": Abbreviations(
        titles=_words("dr prof av sn doç öğr"),
        going_on=_words("örn bkz"),
        counting=_words("cad sok no tel s"),
        open=_words("vb vs"),
        words=_words("no"),
        starters=_words("bu o ve ama fakat ben sen biz siz onlar ne kim evet hayır lütfen şimdi"),
        ordinals=True,
    ),
}
_LIKE: Final = {"nb": "da", "nn": "da", "no": "da"}
#: Other languages where a number with a period is an ordinal.
_ORDINALS: Final = _words("fi cs sk hu hr sl sr bs et lv is")


@cache
def abbreviations(language: str) -> Abbreviations:
    """The tables for an ISO 639 code, with or without a region ("en", "pt-BR").

    Latin titles and the like of English count in every language; what is an everyday word there
    as well only in English. A language without a table has those alone.
    """
    code = language.replace("_", "-").partition("-")[0].lower()
    code = _LIKE.get(code, code)
    own = _LANGUAGES.get(code)
    english = _LANGUAGES["en"]
    if own is None:
        own = Abbreviations(ordinals=code in _ORDINALS)
    foreign = _WORDS | {"al", "co"} if code != "en" else frozenset()
    return Abbreviations(
        titles=_TITLES | own.titles,
        going_on=_GOING_ON | own.going_on,
        counting=(_COUNTING - foreign) | own.counting,
        open=(_OPEN - foreign) | own.open,
        words=own.words,
        starters=own.starters if code in _LANGUAGES else english.starters,
        ordinals=own.ordinals,
        capital_nouns=own.capital_nouns,
    )
