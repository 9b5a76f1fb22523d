//! How figures are shown.

use coreline_scenarios::metric::FigureKind;

#[test]
fn only_zero_is_shown_as_zero() {
    for (value, kind, shown) in [
        (0.004_36, FigureKind::Ratio, 0.0044),
        (0.0, FigureKind::Ratio, 0.0),
        (1.2345, FigureKind::Ratio, 1.23),
        (-0.0123, FigureKind::Nanoseconds, -0.012),
        (1234.56, FigureKind::Nanoseconds, 1234.6),
        (0.4, FigureKind::Cycles, 0.4),
        (350.4, FigureKind::Cycles, 350.0),
    ] {
        assert!((kind.round(value) - shown).abs() < 1e-9, "{value} {kind:?}");
    }
    let ratio = |value| FigureKind::Ratio.round(value);
    assert!(ratio(f64::NAN).is_nan() && ratio(f64::INFINITY) > 1e9);
}
