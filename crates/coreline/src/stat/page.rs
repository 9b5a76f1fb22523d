//! [`Page`]: what a process publishes, and its form in bytes.
//!
//! Numbers are little-endian, and texts are UTF-8, padded with zeros. A text that is too long is
//! cut.
//!
//! | bytes of the header | meaning |
//! |---|---|
//! | 0 to 7 | `coreline` |
//! | 8 to 11 | the version of this form: 1 |
//! | 12 to 15 | how many rows follow |
//! | 16 to 23 | the checksum of all bytes behind it: FNV-1a of 64 bits |
//! | 24 to 27 | the number of the process |
//! | 28 to 31 | how many rows were left out, because there were more than [`MOST_ROWS`] |
//! | 32 to 39 | the time of this look, in nanoseconds of the process's own clock |
//! | 40 to 47 | how many looks there were, including this one |
//! | 48 to 63 | zero |
//! | 64 to 127 | the program's name for itself |
//!
//! | bytes of a row | meaning |
//! |---|---|
//! | 0 to 7 | the value |
//! | 8 | 0: a count, which only grows; 1: a level |
//! | 9 to 15 | zero |
//! | 16 to 31 | the kind of object: `locks`, `workers`, `cache` |
//! | 32 to 79 | the object's name |
//! | 80 to 127 | the value's name |

use core::str;

/// The number of rows in a page, at most.
pub const MOST_ROWS: usize = 1024;

/// The version of the form that this library writes and reads.
pub const VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"coreline";
const HEADER: usize = 128;
const ROW: usize = 128;

/// The largest number of bytes that a page may have. A reader need not read more.
pub const MOST_BYTES: usize = HEADER + MOST_ROWS * ROW;

/// The bytes that a checksum does not cover.
const SUMMED: usize = 24;

const _: () = assert!(MOST_BYTES == 131_200, "readers rely on it");

/// A named value of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The kind of object: `locks`, `workers`, `cache`, or a name of the program's choice.
    pub kind: String,
    /// The object's name; empty for the locks of the process.
    pub object: String,
    /// The value's name.
    pub name: String,
    /// The value.
    pub value: u64,
    /// Whether the value is a level, which may fall. Otherwise it is a count, which only grows.
    pub is_level: bool,
}

/// What a process has published.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The number of the process.
    pub pid: u32,
    /// The program's name for itself.
    pub name: String,
    /// The time of the look, in nanoseconds of the process's own clock. Only differences between
    /// pages of one process mean anything.
    pub nanos: u64,
    /// The number of looks, including this one.
    pub looks: u64,
    /// The number of rows that were left out.
    pub left_out: u32,
    /// The values.
    pub rows: Vec<Row>,
}

/// The reason why bytes are not a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// Another version of the library wrote the page.
    #[error(
        "the page has version {found}, and this program reads version {VERSION}; use the \
         `coreline` of the library that the process uses"
    )]
    Version {
        /// The page's version.
        found: u32,
    },
    /// The bytes are no page, or the process was just writing it.
    #[error("the page is damaged: {0}; read it again, or restart the process that publishes it")]
    Damaged(&'static str),
}

/// FNV-1a. It finds pages that were read while they were written, and no attacks.
fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// Appends a text in `len` bytes.
fn put(bytes: &mut Vec<u8>, text: &str, len: usize) {
    let end = bytes.len() + len;
    let cut = (0..=len.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    bytes.extend_from_slice(&text.as_bytes()[..cut.unwrap_or(0)]);
    bytes.resize(end, 0);
}

/// The text in these bytes. Control characters could change the reader's terminal.
fn text(bytes: &[u8]) -> Result<String, PageError> {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let found = str::from_utf8(&bytes[..end]);
    let found = found.map_err(|_| PageError::Damaged("a name is not UTF-8"))?;
    match found.chars().any(char::is_control) {
        true => Err(PageError::Damaged("a name has control characters")),
        false => Ok(found.to_owned()),
    }
}

/// The number in the first bytes of these.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
}

impl Page {
    /// The page as bytes. Rows beyond [`MOST_ROWS`] are left out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let rows = &self.rows[..self.rows.len().min(MOST_ROWS)];
        let beyond = u32::try_from(self.rows.len() - rows.len()).unwrap_or(u32::MAX);
        let left_out = self.left_out.saturating_add(beyond);
        let mut bytes = Vec::with_capacity(HEADER + rows.len() * ROW);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&self.pid.to_le_bytes());
        bytes.extend_from_slice(&left_out.to_le_bytes());
        bytes.extend_from_slice(&self.nanos.to_le_bytes());
        bytes.extend_from_slice(&self.looks.to_le_bytes());
        bytes.extend_from_slice(&[0; 16]);
        put(&mut bytes, &self.name, 64);
        for row in rows {
            bytes.extend_from_slice(&row.value.to_le_bytes());
            bytes.extend_from_slice(&[u8::from(row.is_level), 0, 0, 0, 0, 0, 0, 0]);
            put(&mut bytes, &row.kind, 16);
            put(&mut bytes, &row.object, 48);
            put(&mut bytes, &row.name, 48);
        }
        let sum = checksum(&bytes[SUMMED..]);
        bytes[16..SUMMED].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a page that another process may be writing, so the bytes may be anything.
    ///
    /// # Errors
    ///
    /// [`PageError`] if the bytes are not a page of this [`VERSION`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Page, PageError> {
        if bytes.len() < HEADER || !bytes.starts_with(MAGIC) {
            return Err(PageError::Damaged("it has no header"));
        }
        let word = |at: usize| number(&bytes[at..at + 4]) as u32;
        let version = word(8);
        if version != VERSION {
            return Err(PageError::Version { found: version });
        }
        let count = word(12) as usize;
        if count > MOST_ROWS || bytes.len() != HEADER + count * ROW {
            return Err(PageError::Damaged("its length is not that of its rows"));
        }
        if number(&bytes[16..24]) != checksum(&bytes[SUMMED..]) {
            return Err(PageError::Damaged("its checksum is wrong"));
        }
        let row = |row: &[u8]| {
            Ok(Row {
                kind: text(&row[16..32])?,
                object: text(&row[32..80])?,
                name: text(&row[80..])?,
                value: number(row),
                is_level: row[8] != 0,
            })
        };
        Ok(Page {
            pid: word(24),
            left_out: word(28),
            nanos: number(&bytes[32..]),
            looks: number(&bytes[40..]),
            name: text(&bytes[64..HEADER])?,
            rows: bytes[HEADER..].chunks_exact(ROW).map(row).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, value: u64) -> Row {
        Row {
            kind: "cache".to_owned(),
            object: "sessions".to_owned(),
            name: name.to_owned(),
            value,
            is_level: name == "live",
        }
    }

    fn page() -> Page {
        let rows = vec![row("gets", u64::MAX), row("live", 3)];
        let name = "päge".to_owned();
        Page { pid: 7, name, nanos: 1 << 40, looks: 2, left_out: 0, rows }
    }

    #[test]
    fn a_page_comes_back() {
        assert_eq!(Page::from_bytes(&page().to_bytes()), Ok(page()));
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let mut page = page();
        page.name = "ä".repeat(40);
        page.rows[0].name = format!("{}ä", "x".repeat(47));
        let read = Page::from_bytes(&page.to_bytes()).unwrap();
        assert_eq!((read.name, read.rows[0].name.len()), ("ä".repeat(32), 47));
    }

    #[test]
    fn rows_beyond_the_room_are_counted() {
        let rows = vec![row("gets", 1); MOST_ROWS + 5];
        let bytes = Page { rows, ..page() }.to_bytes();
        assert_eq!(bytes.len(), MOST_BYTES);
        let read = Page::from_bytes(&bytes).unwrap();
        assert_eq!((read.rows.len(), read.left_out), (MOST_ROWS, 5));
    }

    #[test]
    fn no_damage_goes_unseen() {
        let whole = page().to_bytes();
        for len in 0..whole.len() {
            assert!(Page::from_bytes(&whole[..len]).is_err(), "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            assert!(Page::from_bytes(&bytes).is_err(), "byte {at}");
        }
        let mut later = whole.clone();
        later[8] = 2;
        assert_eq!(Page::from_bytes(&later), Err(PageError::Version { found: 2 }));
        let mut rows = whole;
        rows[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Page::from_bytes(&rows), Err(PageError::Damaged(_))));
    }

    #[test]
    fn names_that_would_change_a_terminal_are_refused() {
        let mut page = page();
        page.name = "a\x1b[2J".to_owned();
        assert!(matches!(Page::from_bytes(&page.to_bytes()), Err(PageError::Damaged(_))));
    }
}
