//! How programs are written and read.

use coreline_scenarios::point::Point;
use coreline_scenarios::{ALL, Scenario};

fn parse(text: &str) -> Option<Point> {
    ALL.iter().find_map(|scenario| Point::parse(scenario, text))
}

const PROGRAMS: [&str; 7] = [
    "intermittent config=24-core/24-L3 delay=10 turns=timed variant=recent",
    "intermittent config=24-core/24-L3 delay=10 turns=timed variant=recent sequences=2",
    "switchstorm config=120-thread/4-L3 wake=barrier period=25 path=1500 flush=0 \
     variant=always-set rounds=200",
    "shootdown config=120-thread/4-L3 present=8 variant=eager updates=50",
    "threadstorm config=384-thread/24-L3 size=8x32 place=pinned rest=30 path=1500 \
     variant=owned rounds=10",
    "tenants config=384-thread/24-L3 tenants=1000 tasks=2 variant=domain",
    "lockscale config=96-core/4-L3 threads=96 place=spread section=100 outside=500 \
     variant=near window=4000",
];

#[test]
fn a_program_reads_back_and_others_are_refused() {
    for program in PROGRAMS {
        assert_eq!(parse(program).unwrap().to_string(), program);
        for wrong in ["sing config=x", "", program.split_once(' ').unwrap().0] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
        assert!(parse(&format!("{program} more")).is_none() && parse(&program[1..]).is_none());
    }
    for (from, to) in [
        ("config=24-core/24-L3 ", ""),
        ("delay=10", "delay=x"),
        ("delay=10", "delay=10001"),
        ("=recent", "=nothing"),
        ("sequences=2", "sequences=0"),
        ("sequences=2", "sequences=1001"),
        ("sequences=2", "speed=1"),
        ("wake=barrier", "wake=never"),
        ("period=25", "period=0"),
        ("path=1500", "path=1000001"),
        ("flush=0 ", ""),
        ("rounds=200", "rounds=0"),
        (" rounds=10", ""),
        ("present=8", "present=0"),
        ("present=8", "present=4097"),
        ("variant=eager", "variant=recent"),
        ("size=8x32", "size=8"),
        ("size=8x32", "size=8x0"),
        ("size=8x32", "size=257x8"),
        ("place=pinned", "place=here"),
        ("rest=30", "rest=100001"),
        ("tenants=1000", "tenants=10001"),
        ("tasks=2", "tasks=65"),
        ("place=spread", "place=pinned"),
        ("window=4000", "window=0"),
    ] {
        let program = PROGRAMS.iter().rev().find(|program| program.contains(from)).unwrap();
        assert!(parse(&program.replace(from, to)).is_none(), "{program}: {from} {to}");
    }
}

#[test]
fn a_form_says_how_a_program_is_written() {
    let forms = ALL.map(Scenario::form);
    assert_eq!(
        forms[..2],
        [
            "`intermittent config=NAME delay=MS turns=timed|called variant=NAME`, optionally \
             with `sequences=N`",
            "`switchstorm config=NAME wake=barrier|independent period=US path=NS flush=US \
             variant=NAME rounds=N`",
        ]
    );
    assert!(forms[3].contains(" size=POOLSxTHREADS "), "{}", forms[3]);
}
