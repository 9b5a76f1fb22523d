//! A chart as a picture, with its title, machine and replay line: for an issue or a slide.
//!
//! Drawn from the figure that the page shows, and as far as ours go: series and columns with
//! whiskers, heat maps, boxes in one another. No browser is needed. The font is that of the package
//! `dejavu`.

use std::sync::Once;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use serde_json::Value;

use super::figure::{Chart, ends, numbers};
use crate::error::Error;
use crate::text::wrapped;

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 800;

/// The space above the drawing, and below it.
const HEAD: i32 = 70;
const FOOT: i32 = 80;

const INK: RGBColor = RGBColor(27, 31, 36);
const SOFT: RGBColor = RGBColor(87, 96, 106);
const GRID: RGBColor = RGBColor(208, 215, 222);

type Area<B> = DrawingArea<B, Shift>;
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

pub(super) fn svg(chart: &Chart) -> Result<Vec<u8>, Error> {
    font();
    let mut text = String::new();
    let drawn =
        draw(&SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area(), chart);
    drawn.map_err(|error| Error::Picture(error.to_string()))?;
    Ok(text.into_bytes())
}

pub(super) fn png(chart: &Chart) -> Result<Vec<u8>, Error> {
    font();
    let mut pixels = vec![0; (WIDTH * HEIGHT * 3) as usize];
    let area = BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)).into_drawing_area();
    draw(&area, chart).map_err(|error| Error::Picture(error.to_string()))?;
    drop(area);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut it| it.write_image_data(&pixels));
    written.map_err(|error| Error::Picture(error.to_string()))?;
    Ok(file)
}

/// Makes the font known. Text is left out of pictures without one.
fn font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let known = register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular());
        debug_assert!(known.is_ok(), "the font can be read");
    });
}

fn draw<B: DrawingBackend>(root: &Area<B>, chart: &Chart) -> Drawn<B> {
    root.fill(&WHITE)?;
    text(root, &chart.title, (20, 16), 24, &INK, (HPos::Left, VPos::Top))?;
    let mut foot = wrapped(&chart.machine, 150).into_iter().take(2).collect::<Vec<_>>();
    foot.extend(wrapped(&chart.replay, 150).into_iter().take(3));
    for (at, line) in foot.iter().rev().enumerate() {
        let below = HEIGHT as i32 - 10 - 15 * at as i32;
        text(root, line, (20, below), 12, &SOFT, (HPos::Left, VPos::Bottom))?;
    }
    let area = root.clone().margin(HEAD, FOOT, 20, 20);
    let data = &chart.figure.data;
    let kind = data.first().and_then(|trace| trace["type"].as_str());
    match kind {
        Some("treemap") => boxes(&area, &data[0])?,
        Some("heatmap") => heat_map(&area, &data[0])?,
        _ => Axes::new(data, &chart.figure.layout, area.dim_in_pixel()).draw(&area)?,
    }
    root.present()
}

fn text<B: DrawingBackend>(
    area: &Area<B>,
    text: &str,
    at: (i32, i32),
    size: u32,
    colour: &RGBColor,
    (horizontal, vertical): (HPos, VPos),
) -> Drawn<B> {
    let style = ("sans-serif", size).into_font().color(colour).pos(Pos::new(horizontal, vertical));
    area.draw(&Text::new(text.to_owned(), at, style))
}

/// The visible part of text that Plotly would read.
fn seen(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn colour(trace: &Value) -> RGBColor {
    let code = trace["marker"]["color"].as_str().unwrap_or("#000000");
    let part = |at: usize| code.get(at..at + 2).and_then(|it| u8::from_str_radix(it, 16).ok());
    RGBColor(part(1).unwrap_or(0), part(3).unwrap_or(0), part(5).unwrap_or(0))
}

/// The colour of a share from 0 to 1, from light yellow to dark red.
fn heat(share: f64) -> RGBColor {
    let stops = [(255.0, 247.0, 188.0), (254.0, 153.0, 41.0), (153.0, 16.0, 20.0)];
    let share = share.clamp(0.0, 1.0) * 2.0;
    let (from, to) = if share < 1.0 { (stops[0], stops[1]) } else { (stops[1], stops[2]) };
    let part = share - share.floor().min(1.0);
    let mix = |from: f64, to: f64| (from + (to - from) * part) as u8;
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

/// A rectangle: left, top, right, bottom.
type Rect = (f64, f64, f64, f64);

fn rectangle<B: DrawingBackend>(
    area: &Area<B>,
    (left, top, right, bottom): Rect,
    style: ShapeStyle,
) -> Drawn<B> {
    let corners = [(left as i32, top as i32), (right as i32, bottom as i32)];
    area.draw(&Rectangle::new(corners, style))
}

/// Series and columns over two axes.
struct Axes<'a> {
    data: &'a [Value],
    layout: &'a Value,
    /// Names of the horizontal axis, in their order; none: numbers.
    names: Vec<String>,
    is_log: [bool; 2],
    ends: [(f64, f64); 2],
    frame: Rect,
}

impl<'a> Axes<'a> {
    fn new(data: &'a [Value], layout: &'a Value, (width, height): (u32, u32)) -> Axes<'a> {
        let mut names: Vec<String> = Vec::new();
        let places = data.iter().flat_map(|trace| trace["x"].as_array().into_iter().flatten());
        for place in places.filter(|it| it.is_string()).map(seen) {
            if !names.contains(&place) {
                names.push(place);
            }
        }
        let log = |axis: &str| layout[axis]["type"] == "log";
        let is_log = [log("xaxis"), log("yaxis")];
        let stacked = layout["barmode"] == "stack";
        let mut tops: Vec<f64> = Vec::new();
        for trace in data {
            let values = numbers(&trace["y"]);
            let more = |key: &str, at: usize| trace["error_y"][key][at].as_f64().unwrap_or(0.0);
            for (at, value) in values.iter().enumerate() {
                tops.extend([value + more("array", at), value - more("arrayminus", at)]);
            }
        }
        if stacked {
            let sum = |at| data.iter().filter_map(|trace| trace["y"][at].as_f64()).sum::<f64>();
            tops.extend((0..names.len()).map(sum));
        }
        let numbers: Vec<f64> = data.iter().flat_map(|trace| numbers(&trace["x"])).collect();
        let across = match names.len() {
            0 => ends(&numbers),
            count => (-0.5, count as f64 - 0.5),
        };
        let (low, high) = ends(&tops);
        let up = if is_log[1] {
            (low.max(f64::MIN_POSITIVE) / 1.3, high * 1.3)
        } else {
            (low.min(0.0), high * 1.06)
        };
        let widen = |(low, high): (f64, f64)| match () {
            () if !(low.is_finite() && high.is_finite()) => (0.0, 1.0),
            () if low == high => (low - 0.5, high + 0.5),
            () => (low, high),
        };
        let lines = names.iter().map(|name| name.split("<br>").count()).max().unwrap_or(1);
        let below = 40.0 + 13.0 * lines.max(1) as f64;
        let frame = (80.0, 30.0, f64::from(width) - 10.0, f64::from(height) - below);
        Axes { data, layout, names, is_log, ends: [widen(across), widen(up)], frame }
    }

    /// The position of a value on the axis across (0) or up (1).
    fn at(&self, axis: usize, value: f64) -> f64 {
        let (low, high) = self.ends[axis];
        let scaled = |value: f64| {
            if self.is_log[axis] { value.max(low.min(high) * 0.5).log10() } else { value }
        };
        let share = (scaled(value) - scaled(low)) / (scaled(high) - scaled(low));
        let (left, top, right, bottom) = self.frame;
        match axis {
            0 => left + 12.0 + share * (right - left - 24.0),
            _ => bottom - share * (bottom - top),
        }
    }

    /// The position across of an item of a series.
    fn place(&self, item: &Value) -> Option<f64> {
        let named = || self.names.iter().position(|name| *name == seen(item));
        Some(self.at(0, item.as_f64().or_else(|| named().map(|at| at as f64))?))
    }

    fn draw<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        self.grid(area)?;
        self.legend(area)?;
        let columns: Vec<_> = self.data.iter().filter(|it| it["type"] == "bar").collect();
        let mut below = vec![0.0; self.names.len()];
        for (at, trace) in columns.iter().enumerate() {
            self.columns(area, trace, (at, columns.len()), &mut below)?;
        }
        self.data.iter().filter(|it| it["type"] != "bar").try_for_each(|it| self.series(area, it))
    }

    fn grid<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let (left, top, right, bottom) = self.frame;
        for tick in ticks(self.ends[1], self.is_log[1]) {
            let y = self.at(1, tick) as i32;
            area.draw(&PathElement::new([(left as i32, y), (right as i32, y)], GRID))?;
            let label = super::read::number(tick);
            text(area, &label, (left as i32 - 8, y), 13, &INK, (HPos::Right, VPos::Center))?;
        }
        area.draw(&PathElement::new(
            [
                (left as i32, top as i32),
                (left as i32, bottom as i32),
                (right as i32, bottom as i32),
            ],
            SOFT,
        ))?;
        let under = bottom as i32 + 8;
        let centred = (HPos::Center, VPos::Top);
        for (at, name) in self.names.iter().enumerate() {
            let x = self.at(0, at as f64) as i32;
            let room = (right - left) / self.names.len() as f64 / 6.2;
            for (line, part) in name.split("<br>").enumerate() {
                let part: String = part.chars().take(room.max(3.0) as usize).collect();
                text(area, &part, (x, under + 13 * line as i32), 11, &INK, centred)?;
            }
        }
        if self.names.is_empty() {
            let stated = numbers(&self.layout["xaxis"]["tickvals"]);
            let usual = || ticks(self.ends[0], self.is_log[0]);
            for tick in if stated.is_empty() { usual() } else { stated } {
                let x = self.at(0, tick) as i32;
                text(area, &super::read::number(tick), (x, under), 13, &INK, centred)?;
            }
        }
        let title = |axis: &str| seen(&self.layout[axis]["title"]["text"]);
        let middle = ((left + right) / 2.0) as i32;
        let low = area.dim_in_pixel().1 as i32 - 6;
        text(area, &title("xaxis"), (middle, low), 14, &INK, (HPos::Center, VPos::Bottom))?;
        text(area, &title("yaxis"), (0, 0), 14, &INK, (HPos::Left, VPos::Top))
    }

    fn legend<B: DrawingBackend>(&self, area: &Area<B>) -> Drawn<B> {
        let mut right = self.frame.2 as i32;
        for trace in self.data.iter().rev() {
            let name = seen(&trace["name"]);
            let width = 26 + 8 * name.chars().count() as i32;
            right -= width;
            let corners = [(right, 3), (right + 12, 15)];
            area.draw(&Rectangle::new(corners, colour(trace).filled()))?;
            text(area, &name, (right + 17, 9), 13, &INK, (HPos::Left, VPos::Center))?;
        }
        Ok(())
    }

    fn columns<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        trace: &Value,
        (number, of): (usize, usize),
        below: &mut [f64],
    ) -> Drawn<B> {
        let (left, _, right, _) = self.frame;
        let stacked = self.layout["barmode"] == "stack";
        let room = (right - left - 24.0) / self.names.len().max(1) as f64 * 0.8;
        let (width, number) = if stacked { (room, 0) } else { (room / of as f64, number) };
        let items = trace["x"].as_array().into_iter().flatten();
        for (at, (item, value)) in items.zip(numbers(&trace["y"])).enumerate() {
            let Some(x) = self.place(item) else { continue };
            let index = self.names.iter().position(|name| *name == seen(item)).unwrap_or(0);
            // Columns that are stacked have names.
            let base = below.get(index).copied().filter(|_| stacked).unwrap_or(0.0);
            below.iter_mut().skip(index).take(1).for_each(|base| *base += value);
            let from = x - room / 2.0 + width * number as f64;
            let column = (from, self.at(1, base + value), from + width * 0.92, self.at(1, base));
            rectangle(area, column, colour(trace).filled())?;
            self.whisker(area, trace, at, value, from + width * 0.46, INK)?;
        }
        Ok(())
    }

    fn series<B: DrawingBackend>(&self, area: &Area<B>, trace: &Value) -> Drawn<B> {
        let colour = colour(trace);
        let items = trace["x"].as_array().into_iter().flatten();
        let mut line = Vec::new();
        for (at, (item, value)) in items.zip(numbers(&trace["y"])).enumerate() {
            let Some(x) = self.place(item) else { continue };
            self.whisker(area, trace, at, value, x, colour)?;
            let (x, y) = (x as i32, self.at(1, value) as i32);
            line.push((x, y));
            if trace["marker"]["symbol"] == "diamond-open" {
                let corners = [(x - 8, y), (x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)];
                area.draw(&PathElement::new(corners, colour.stroke_width(2)))?;
            } else {
                area.draw(&Circle::new((x, y), 5, colour.filled()))?;
            }
        }
        if trace["mode"] == "lines+markers" {
            area.draw(&PathElement::new(line, colour.stroke_width(2)))?;
        }
        Ok(())
    }

    fn whisker<B: DrawingBackend>(
        &self,
        area: &Area<B>,
        trace: &Value,
        item: usize,
        value: f64,
        x: f64,
        colour: RGBColor,
    ) -> Drawn<B> {
        let of = |key: &str| trace["error_y"][key][item].as_f64().unwrap_or(0.0);
        let (more, less) = (of("array"), of("arrayminus"));
        if more == 0.0 && less == 0.0 {
            return Ok(());
        }
        let (x, high, low) =
            (x as i32, self.at(1, value + more) as i32, self.at(1, value - less) as i32);
        for [from, to] in
            [[(x, high), (x, low)], [(x - 5, high), (x + 5, high)], [(x - 5, low), (x + 5, low)]]
        {
            area.draw(&PathElement::new([from, to], colour.stroke_width(1)))?;
        }
        Ok(())
    }
}

/// Round numbers between the ends of an axis.
fn ticks((low, high): (f64, f64), is_log: bool) -> Vec<f64> {
    if is_log && low > 0.0 {
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all = decades.flat_map(|ten| [1.0, 2.0, 5.0].map(|one| one * 10f64.powi(ten)));
        let all: Vec<f64> = all.filter(|tick| (low..=high).contains(tick)).collect();
        // Too many to tell apart: powers of ten.
        let is_ten = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
        return if all.len() > 12 { all.into_iter().filter(is_ten).collect() } else { all };
    }
    let rough = (high - low) / 6.0;
    let ten = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|one| one * ten).into_iter().find(|it| *it >= rough);
    let step = step.unwrap_or(ten * 10.0);
    let (from, to) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (from..=to).map(|at| at as f64 * step).collect()
}

fn heat_map<B: DrawingBackend>(area: &Area<B>, trace: &Value) -> Drawn<B> {
    let rows: Vec<&Value> = trace["z"].as_array().into_iter().flatten().collect();
    let (width, height) = area.dim_in_pixel();
    let (width, height) = (f64::from(width) - 110.0, f64::from(height) - 40.0);
    let (low, high) = ends(&rows.iter().flat_map(|row| numbers(row)).collect::<Vec<_>>());
    let (across, down) = (width / rows.len() as f64, height / rows.len() as f64);
    let size = (down.min(across / 3.0) * 0.7).clamp(0.0, 16.0) as u32;
    let centred = (HPos::Center, VPos::Center);
    for (y, row) in rows.iter().enumerate() {
        let top = y as f64 * down;
        for (x, value) in row.as_array().into_iter().flatten().enumerate() {
            let left = 90.0 + x as f64 * across;
            let cell = (left, top, left + across, top + down);
            let Some(value) = value.as_f64() else { continue };
            let share = if high > low { (value - low) / (high - low) } else { 0.0 };
            rectangle(area, cell, heat(share).filled())?;
            if size >= 6 {
                let middle = ((left + across / 2.0) as i32, (top + down / 2.0) as i32);
                let ink = if share > 0.6 { &WHITE } else { &INK };
                text(area, &format!("{value:.0}"), middle, size, ink, centred)?;
            }
        }
        // Labels that do not fit are left out.
        let every = (14.0 / down).ceil() as usize;
        if y.is_multiple_of(every.max(1)) {
            let label = seen(&trace["y"][y]);
            let middle = (top + down / 2.0) as i32;
            text(area, &label, (82, middle), 12, &INK, (HPos::Right, VPos::Center))?;
        }
        let every = (60.0 / across).ceil() as usize;
        if y.is_multiple_of(every.max(1)) {
            let middle = (90.0 + (y as f64 + 0.5) * across) as i32;
            let under = height as i32 + 6;
            text(
                area,
                &seen(&trace["x"][y]),
                (middle, under),
                12,
                &INK,
                (HPos::Center, VPos::Top),
            )?;
        }
    }
    Ok(())
}

/// Boxes in one another: neighbours, which are of one size, in a grid.
fn boxes<B: DrawingBackend>(area: &Area<B>, trace: &Value) -> Drawn<B> {
    let (width, height) = area.dim_in_pixel();
    let whole = (0.0, 0.0, f64::from(width), f64::from(height));
    let colours = numbers(&trace["marker"]["colors"]);
    let most = ends(&colours).1;
    part(area, trace, 0, whole, &|at| match colours.get(at) {
        Some(value) if most > 0.0 => heat(value / most),
        _ => RGBColor(221, 232, 243),
    })
}

fn part<B: DrawingBackend>(
    area: &Area<B>,
    trace: &Value,
    at: usize,
    rect: Rect,
    colour: &dyn Fn(usize) -> RGBColor,
) -> Drawn<B> {
    let parents = trace["parents"].as_array().map_or(&[][..], Vec::as_slice);
    let inside: Vec<usize> =
        (0..parents.len()).filter(|inner| parents[*inner] == trace["ids"][at]).collect();
    let (left, top, right, bottom) = rect;
    let fill = if inside.is_empty() { colour(at) } else { WHITE };
    rectangle(area, rect, fill.filled())?;
    rectangle(area, rect, SOFT.stroke_width(1))?;
    let label = seen(&trace["labels"][at]);
    let fits = right - left > 6.0 * label.chars().count() as f64 && bottom - top > 13.0;
    if fits {
        let place = (left as i32 + 4, top as i32 + 2);
        text(area, &label, place, 11, &INK, (HPos::Left, VPos::Top))?;
    }
    let head = if fits { 16.0 } else { 2.0 };
    let (width, height) = (right - left - 4.0, bottom - top - head - 2.0);
    let count = inside.len().max(1);
    // As square as can be.
    let columns = (1..=count).min_by_key(|columns| {
        let rows = count.div_ceil(*columns);
        let (across, down) = (width / *columns as f64, height / rows as f64);
        let off = (across / down.max(0.1)).ln().abs();
        (off * 1000.0) as u64 + 300 * (columns * rows - count) as u64
    });
    let columns = columns.unwrap_or(1);
    let (across, down) = (width / columns as f64, height / count.div_ceil(columns) as f64);
    for (number, inner) in inside.into_iter().enumerate() {
        let (column, row) = ((number % columns) as f64, (number / columns) as f64);
        let (x, y) = (left + 2.0 + column * across, top + head + row * down);
        part(area, trace, inner, (x, y, x + across - 2.0, y + down - 2.0), colour)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::{Figure, Mark, Section, bars, line, published};

    fn chart(data: Vec<Value>) -> Chart {
        Chart {
            id: "x".to_owned(),
            section: Section::Other,
            title: "a <title>".to_owned(),
            says: String::new(),
            machine: "the machine".to_owned(),
            replay: "coreline replay <line>".to_owned(),
            figure: Figure::axes(data, "a", ["across", "up"]),
        }
    }

    fn marks() -> Vec<Mark> {
        let mark = |at: u64| Mark {
            at: at.into(),
            value: at as f64,
            low: Some(at as f64 / 2.0),
            high: Some(at as f64 * 2.0),
        };
        [1, 2, 3].map(mark).to_vec()
    }

    #[test]
    fn a_picture_has_each_mark_and_says_what_it_is_of() {
        let text = svg(&chart(vec![line("one", 0, &marks()), published("other", &marks()[..2])]));
        let text = String::from_utf8(text.unwrap()).unwrap();
        assert_eq!(text.matches("<circle").count(), 3, "{text}");
        for said in ["a &lt;title&gt;", "the machine", "coreline replay &lt;line&gt;", "across"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let columns = svg(&chart(vec![bars("one", 2, &marks())])).unwrap();
        let columns = String::from_utf8(columns).unwrap();
        // One more is in the legend.
        assert_eq!(columns.matches("fill=\"#009E73\"").count(), 4, "{columns}");
    }

    #[test]
    fn pixels_have_text_too() {
        let file = png(&chart(vec![bars("one", 2, &marks())])).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (WIDTH, HEIGHT));
        let is_dark = |row: usize| {
            let row = &pixels[row * WIDTH as usize * 3..][..WIDTH as usize * 3];
            row.chunks(3).filter(|pixel| pixel.iter().all(|it| *it < 120)).count()
        };
        let title: usize = (16..45).map(is_dark).sum();
        assert!(title > 100, "the title is {title} dark pixels");
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks((0.0, 10.0), false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks((0.9, 110.0), true), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert!(ticks((1.0, 1e9), true).len() <= 12);
    }
}
