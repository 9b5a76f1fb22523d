"""Prints the tables of this page from the rows of the sweeps: python tables.py ROWS"""

import sys

import polars as pl

LOCKS = ["fifo", "near", "per-node", "ticket", "mcs", "cna", "reciprocating", "test-and-set", "parking-lot"]
WHERE = ["one last-level cache", "one node, several caches", "several nodes"]
CASE = ["machine", "arbitration", "threads", "section_ns", "outside_ns"]
# So many threads fit under one last-level cache, and into one node, when they fill one node after the other.
PARTS = {
    "epyc-9654-2s": (8, 192),
    "haswell-ex-4s": (36, 36),
    "kunpeng920-96c-4n": (24, 24),
    "x86-128c-8n": (8, 16),
}


def table(heads: list[str], rows: list[list[str]]) -> None:
    for row in [heads, ["---"] * len(heads), *rows]:
        print("| " + " | ".join(row) + " |")
    print()


def percent(some: pl.DataFrame, condition: pl.Expr) -> str:
    return f"{100 * len(some.filter(condition)) / len(some):.0f} %" if len(some) else ""


def spread(values: pl.Series) -> str:
    return f"{values.median():.2f} ({values.min():.2f} to {values.max():.2f})" if len(values) else ""


def of_best(cells: pl.DataFrame, name: str) -> pl.DataFrame:
    """A column with each row's throughput relative to the highest one at the same point."""
    best = pl.max("turns").over([*CASE, "request_percent"])
    return cells.with_columns((pl.col("turns") / best).alias(name))


def main(folder: str) -> None:
    cells = pl.read_parquet(f"{folder}/*.parquet")
    print(f"{len(cells)} rows, {cells['error'].is_not_null().sum()} of failed runs\n")
    cells = of_best(cells, "of_all")
    serves = pl.col("share").min().over([*CASE, "variant"]) >= 0.25
    cells = cells.with_columns(serves=serves)
    among = of_best(cells.filter("serves"), "of_fair").select([*CASE, "request_percent", "variant", "of_fair"])
    cells = cells.join(among, on=[*CASE, "request_percent", "variant"], how="left")
    # The worst of the three request shares.
    worst = cells.group_by([*CASE, "variant", "serves"]).agg(pl.min("of_all"), pl.min("of_fair"))

    print("## All cases\n")
    rows = []
    for lock in LOCKS:
        mine = worst.filter(pl.col("variant") == lock)
        fair = mine.filter("serves")
        near_best = percent(mine, pl.col("of_all") >= 0.9)
        of_fair = percent(mine, pl.col("of_fair") >= 0.9)
        rows.append([f"`{lock}`", percent(mine, pl.col("serves")), of_fair, spread(fair["of_fair"]), near_best])
    table(["lock", "serves all", "within 10 % of the fastest that serves all", "relative to that", "within 10 % of the fastest of all"], rows)

    for arbitration in ("fifo", "nearest"):
        mine = worst.filter((pl.col("variant") == "near") & (pl.col("arbitration") == arbitration))
        print(percent(mine, pl.col("of_fair") >= 0.9), f"for near under {arbitration}\n")

    print("## By where the threads are\n")
    cache = pl.col("machine").replace_strict({name: part[0] for name, part in PARTS.items()}, return_dtype=pl.UInt64)
    node = pl.col("machine").replace_strict({name: part[1] for name, part in PARTS.items()}, return_dtype=pl.UInt64)
    where = pl.when(pl.col("threads") <= cache).then(0).when(pl.col("threads") <= node).then(1).otherwise(2)
    places = worst.with_columns(where=where)
    rows = []
    for at, name in enumerate(WHERE):
        for outside in (0, 500, 5000):
            some = places.filter((pl.col("where") == at) & (pl.col("outside_ns") == outside))
            values = [some.filter(pl.col("variant") == lock) for lock in LOCKS]
            medians = [f"{one['of_all'].median():.2f}" if len(one) else "" for one in values]
            rows.append([name, str(outside), *medians])
    table(["threads in", "outside, ns", *(f"`{lock}`" for lock in LOCKS)], rows)

    print("## Section 100 ns, outside 500 ns, fifo\n")
    some = worst.filter(
        (pl.col("section_ns") == 100) & (pl.col("outside_ns") == 500) & (pl.col("arbitration") == "fifo")
    )
    rows = []
    for (machine, threads), group in sorted(some.group_by("machine", "threads"), key=lambda pair: pair[0]):
        cell = {
            row["variant"]: f"{row['of_all']:.2f}" if row["serves"] else f"({row['of_all']:.2f})"
            for row in group.iter_rows(named=True)
        }
        rows.append([f"`{machine}`", str(threads), *(cell[lock] for lock in LOCKS)])
    table(["machine", "threads", *(f"`{lock}`" for lock in LOCKS)], rows)

    print("## nearest over fifo\n")
    key = [name for name in CASE if name != "arbitration"] + ["request_percent", "variant"]
    both = cells.filter(pl.col("arbitration") == "fifo").join(
        cells.filter(pl.col("arbitration") == "nearest"), on=key, suffix="_nearest"
    )
    rows = []
    for lock in [lock for lock in LOCKS if lock != "per-node"]:
        mine = both.filter(pl.col("variant") == lock)
        gain = mine["turns_nearest"] / mine["turns"]
        starves = percent(mine, pl.col("serves") & ~pl.col("serves_nearest"))
        rows.append([f"`{lock}`", spread(gain), starves])
    table(["lock", "throughput, nearest over fifo", "starves a thread only under nearest"], rows)

    print("## Does the request share decide?\n")
    first = cells.filter("serves").sort("turns", descending=True).group_by([*CASE, "request_percent"]).first()
    winners = first.group_by(CASE).agg(pl.col("variant").n_unique().alias("winners"))
    print(percent(winners, pl.col("winners") == 1), "of the cases have one winner at all three request shares\n")

    print("## near over fifo\n")
    pair = cells.filter(pl.col("variant").is_in(["near", "fifo"]))
    pair = pair.pivot("variant", index=[*CASE, "request_percent"], values="turns")
    pair = pair.with_columns(where=where, gain=pl.col("near") / pl.col("fifo"))
    rows = []
    for machine in PARTS:
        mine = pair.filter(pl.col("machine") == machine)
        rows.append([f"`{machine}`", *(spread(mine.filter(pl.col("where") == at)["gain"]) for at in range(3))])
    table(["machine", *WHERE], rows)


if __name__ == "__main__":
    main(sys.argv[1])
