"""The data sets of the papers: where they come from, under which terms, and what brings out a paper's figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

GROUPLENS = "https://files.grouplens.org/datasets"
AMAZON = "http://snap.stanford.edu/data/amazon/productGraph/categoryFiles"

MOVIELENS_TERMS = "research use with acknowledgement; no commercial use; no redistribution without separate permission"
HETREC_TERMS = "non-commercial research use; cite the HetRec 2011 workshop, and name the source of the data"
AMAZON_TERMS = "no licence stated; research use, cite the papers named on the home page"

MOVIELENS = "F. M. Harper, J. A. Konstan: The MovieLens Datasets: History and Context. ACM TiiS 5(4), 2015."
HETREC = (
    "I. Cantador, P. Brusilovsky, T. Kuflik: 2nd Workshop on Information Heterogeneity and Fusion in Recommender "
    "Systems (HetRec 2011). RecSys 2011."
)
MCAULEY = "J. McAuley et al.: Image-based recommendations on styles and substitutes. SIGIR 2015."


@dataclass(frozen=True)
class Paper:
    """A paper's figures for a data set, and the filter that reaches them (None: not known)."""

    paper: str
    users: int
    items: int
    interactions: int
    at_least: int | None = 0  # rows that a user must have
    unique_pairs: bool = False  # repeated (user, item) pairs count once
    remark: str = ""


@dataclass(frozen=True)
class Entry:
    """One data set of the catalogue."""

    name: str
    title: str
    homepage: str
    address: str | None  # of the official file; None where a person must sign in or agree on the page
    file: str  # the name of the official file
    members: tuple[str, ...]  # the interactions first, then the titles; empty: the file itself is the table
    terms: str
    citation: str
    md5: str | None = None  # as other public tools record it
    papers: tuple[Paper, ...] = field(default=())

    def how_to_get(self, folder: Path) -> str:
        """What to fetch from where, and where to put it."""
        place = folder / self.name / self.file
        if self.address is None:
            how = (
                f"Get {self.file} from {self.homepage} (no direct address: sign in or agree there) "
                f"and put it at {place}."
            )
        else:
            how = (
                f"Fetch it with: coterie data fetch {self.name}\n"
                f"Or download {self.address} yourself and put it at {place}."
            )
        return f"{how}\nTerms: {self.terms}. Home page: {self.homepage}"


_ENTRIES = (
    Entry(
        name="ml-100k",
        title="MovieLens 100K",
        homepage="https://grouplens.org/datasets/movielens/100k/",
        address=f"{GROUPLENS}/movielens/ml-100k.zip",
        file="ml-100k.zip",
        members=("ml-100k/u.data", "ml-100k/u.item"),
        md5="0e33842e24a9c977be4e0107933c0723",
        terms=MOVIELENS_TERMS,
        citation=MOVIELENS,
        papers=(Paper("FedRAP", 943, 1682, 100_000), Paper("GPFedRec", 943, 1682, 100_000)),
    ),
    Entry(
        name="ml-1m",
        title="MovieLens 1M",
        homepage="https://grouplens.org/datasets/movielens/1m/",
        address=f"{GROUPLENS}/movielens/ml-1m.zip",
        file="ml-1m.zip",
        members=("ml-1m/ratings.dat", "ml-1m/movies.dat"),
        md5="c4d9eecfca2ab87c1945afe126590906",
        terms=MOVIELENS_TERMS,
        citation=MOVIELENS,
        papers=tuple(Paper(paper, 6040, 3706, 1_000_209) for paper in ("FedRAP", "GPFedRec", "FedeRank")),
    ),
    Entry(
        name="lastfm-2k",
        title="HetRec 2011 Last.fm, listening counts",
        homepage="https://grouplens.org/datasets/hetrec-2011/",
        address=f"{GROUPLENS}/hetrec2011/hetrec2011-lastfm-2k.zip",
        file="hetrec2011-lastfm-2k.zip",
        members=("user_artists.dat", "artists.dat"),
        md5="296d61afe4e8632b173fc2dd3be20ce2",
        terms=HETREC_TERMS,
        citation=HETREC,
        papers=(Paper("FedRAP", 1874, 17_612, 92_780, at_least=10),),
    ),
    Entry(
        name="lastfm-2k-tags",
        title="HetRec 2011 Last.fm, one row for each tag given",
        homepage="https://grouplens.org/datasets/hetrec-2011/",
        address=f"{GROUPLENS}/hetrec2011/hetrec2011-lastfm-2k.zip",
        file="hetrec2011-lastfm-2k.zip",
        members=("user_taggedartists-timestamps.dat", "artists.dat"),
        md5="296d61afe4e8632b173fc2dd3be20ce2",
        terms=HETREC_TERMS,
        citation=HETREC,
        papers=(Paper("GPFedRec", 1600, 12_454, 185_650, at_least=5, remark="rows, with repeated pairs"),),
    ),
    Entry(
        name="amazon-instant-video",
        title="Amazon Instant Video ratings (2014), users with at least 5",
        homepage="https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html",
        address=f"{AMAZON}/ratings_Amazon_Instant_Video.csv",
        file="ratings_Amazon_Instant_Video.csv",
        members=(),
        terms=AMAZON_TERMS,
        citation=MCAULEY,
        papers=(Paper("FedRAP", 1372, 7957, 23_181, at_least=10),),
    ),
    Entry(
        name="amazon-digital-music",
        title="Amazon Digital Music ratings (2014), users with at least 20",
        homepage="https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html",
        address=f"{AMAZON}/ratings_Digital_Music.csv",
        file="ratings_Digital_Music.csv",
        members=(),
        terms=AMAZON_TERMS,
        citation=MCAULEY,
        papers=(Paper("FedeRank", 1835, 41_488, 75_932),),
    ),
    Entry(
        name="ta-feng",
        title="Ta-Feng grocery shopping, four months",
        homepage="https://www.kaggle.com/datasets/chiranjivdas09/ta-feng-grocery-dataset",
        address=None,
        file="ta_feng_all_months_merged.csv",
        members=(),
        terms="no licence known; research use",
        citation="Ta-Feng grocery data set, ACM RecSys wiki.",
        papers=(
            Paper(
                "FedRAP", 120, 32_266, 100_000, at_least=None,
                remark="the paper's users are the file's dates and its items the customers: the columns look misread",
            ),
        ),
    ),
    Entry(
        name="hetrec2011",
        title="HetRec 2011 MovieLens",
        homepage="https://grouplens.org/datasets/hetrec-2011/",
        address=f"{GROUPLENS}/hetrec2011/hetrec2011-movielens-2k-v2.zip",
        file="hetrec2011-movielens-2k-v2.zip",
        members=("user_ratedmovies-timestamps.dat", "movies.dat"),
        terms=HETREC_TERMS,
        citation=HETREC,
        papers=(Paper("GPFedRec", 2113, 10_109, 855_598),),
    ),
    Entry(
        name="librarything",
        title="LibraryThing ratings (TU Delft)",
        homepage="https://www.librarything.com/",
        address=None,
        file="UI2.txt",
        members=(),
        terms="no licence known; research use",
        citation="M. Clements, A. P. de Vries, M. J. T. Reinders: The influence of personalization on tag query length "
        "in social media search. Information Processing & Management 46(4), 2010.",
        papers=(Paper("FedeRank", 7279, 37_232, 749_401, unique_pairs=True),),
    ),
    Entry(
        name="qb-article",
        title="Tenrec, articles read in QQ Browser",
        homepage="https://static.qblv.qq.com/qblv/h5/algo-frontend/tenrec_dataset.html",
        address=None,
        file="QB-article.csv",
        members=(),
        terms="CC BY-NC 4.0 and a licence agreement on the home page",
        citation="G. Yuan et al.: Tenrec: A Large-scale Multipurpose Benchmark Dataset for Recommender Systems. "
        "NeurIPS 2022.",
        papers=(Paper("FedRAP", 24_516, 7455, 266_356, at_least=None, remark="the filter behind them is not known"),),
    ),
    Entry(
        name="douban",
        title="Douban movie ratings (social recommendation)",
        homepage="https://www.douban.com/",
        address=None,
        file="douban.zip",
        members=("ratings.txt",),
        terms="no licence known; research use",
        citation="H. Ma, D. Zhou, C. Liu, M. R. Lyu, I. King: Recommender systems with social regularization. "
        "WSDM 2011.",
        papers=(Paper("GPFedRec", 2509, 39_576, 893_575, at_least=10, remark="not checked: the set is not at hand"),),
    ),
)  # fmt: skip

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
