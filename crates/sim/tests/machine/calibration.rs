//! Calibration: a simulated ping-pong gives the figure of the machine file back.

use std::sync::Arc;

use coreline_sim::{Class, Machine, PingPong, Spec, Transfer, presets};
use coreline_world::{JoinHandle, Native, Placement, Threads};

use crate::common::machine;
use crate::ping_pong;

/// The largest share of a figure that a simulated ping-pong may be off it.
const PERCENT: u64 = 3;

fn is_near(simulated: u64, published: u64) -> bool {
    simulated.abs_diff(published) * 100 <= published * PERCENT
}

#[test]
fn every_published_figure_comes_back_at_every_request_share() {
    let mut seen = 0;
    for name in presets() {
        for share in Machine::REQUEST_BAND {
            let machine = machine(name, 1).request_percent(share);
            for transfer in machine.calibration().unwrap() {
                let Transfer { class, published, raw, simulated, reached, .. } = transfer;
                assert!(reached, "{name} {class:?} at {share} %: {transfer:?}");
                assert!(is_near(simulated, published), "{name} {class:?}: {transfer:?}");
                assert_eq!(published, machine.spec().costs().of(class));
                // A player's own locked operation is in the figure, too.
                assert!(raw > published / 2 && raw <= published, "{transfer:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20 * Machine::REQUEST_BAND.len(), "{seen} transfers");
}

/// The same game as an ordinary program, with another seed and more of it.
#[test]
fn a_program_that_plays_sees_the_figure() {
    for share in Machine::REQUEST_BAND {
        let machine = machine("kunpeng920-96c-4n", 77).request_percent(share);
        let one_way = ping_pong(machine, [3, 90]) * 1000 / 4000;
        assert!(is_near(one_way, 220_000), "{one_way} ps between sockets at {share} %");
    }
}

#[test]
fn a_band_moves_the_published_figure() {
    let mut spec = Spec::preset("epyc-9654-2s").unwrap();
    spec.scale("same_node", 130).unwrap();
    let transfers = Machine::new(spec).calibration().unwrap();
    let figures: Vec<_> = transfers.iter().map(|it| (it.class, it.published)).collect();
    let expected =
        [(Class::SameCache, 27_000), (Class::SameNode, 143_000), (Class::OtherSocket, 200_000)];
    assert_eq!(figures, expected, "a socket is one node, so there is no fourth class");
    assert!(transfers.iter().all(|it| is_near(it.simulated, it.published)), "{transfers:?}");
}

#[test]
fn a_figure_that_is_out_of_reach_is_said_to_be() {
    let text = include_str!("../../machines/epyc-9654-2s.toml");
    let text = text.replacen("ping_pong_ns = 27.0", "ping_pong_ns = 3.0", 1);
    let text = text.replacen("name = \"epyc-9654-2s\"", "name = \"fast\"", 1);
    let spec = Spec::parse("fast.toml", &text).unwrap();
    let transfers = Machine::new(spec).calibration().unwrap();
    let Transfer { published, raw, simulated, reached, .. } = transfers[0];
    assert!(!reached);
    assert_eq!((published, raw), (3000, 1100), "as cheap as a hit in the own cache");
    // As often as its line comes, a player has a locked operation of 2.1 ns.
    assert!(simulated > published * 5 / 4, "{simulated} ps");
    assert!(transfers[1..].iter().all(|transfer| transfer.reached));
}

#[test]
fn the_game_ends_natively() {
    let game = Arc::new(PingPong::<Native>::new_in());
    let theirs = Arc::clone(&game);
    let other = Native::spawn(Placement::Anywhere, move || theirs.play(1, 2)).unwrap();
    game.play(0, 2);
    other.join();
}
