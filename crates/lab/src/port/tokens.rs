//! The tokens of a source file, with their places in it.

use std::ops::Range;

use proc_macro2::{Delimiter, LexError, Span, TokenStream, TokenTree};

/// How many brackets may be in each other. A file that a compiler takes has far fewer, and each one
/// takes stack here.
pub(super) const DEEPEST: usize = 500;

/// Why a file has no tokens.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error(transparent)]
    Lex(#[from] LexError),
    /// More than [`DEEPEST`] brackets are in each other, in this line.
    #[error("line {0}: more than {DEEPEST} nested brackets")]
    TooDeep(usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TokenKind {
    Word(String),
    Mark(char),
    Open,
    Close,
    Literal,
}

#[derive(Debug, Clone)]
struct Token {
    kind: TokenKind,
    at: Range<usize>,
    /// The number of the closing token of an opening token.
    close: usize,
}

/// A source file as a flat list of tokens, by number.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    text: &'a str,
    tokens: Vec<Token>,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Result<Tokens<'a>, Unread> {
        let mut tokens = Tokens { text, tokens: Vec::new() };
        // A byte order mark is not a token, and would move all places.
        let stream: TokenStream = text.parse()?;
        tokens.flatten(stream, 0)?;
        Ok(tokens)
    }

    fn flatten(&mut self, stream: TokenStream, depth: usize) -> Result<(), Unread> {
        for tree in stream {
            match tree {
                TokenTree::Group(group) if group.delimiter() != Delimiter::None => {
                    if depth == DEEPEST {
                        return Err(Unread::TooDeep(group.span_open().start().line));
                    }
                    let open = self.tokens.len();
                    self.add(TokenKind::Open, group.span_open());
                    self.flatten(group.stream(), depth + 1)?;
                    self.tokens[open].close = self.tokens.len();
                    self.add(TokenKind::Close, group.span_close());
                }
                TokenTree::Group(group) => self.flatten(group.stream(), depth)?,
                TokenTree::Ident(word) => self.add(TokenKind::Word(word.to_string()), word.span()),
                TokenTree::Punct(mark) => self.add(TokenKind::Mark(mark.as_char()), mark.span()),
                TokenTree::Literal(literal) => self.add(TokenKind::Literal, literal.span()),
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: TokenKind, span: Span) {
        self.tokens.push(Token { kind, at: span.byte_range(), close: 0 });
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn word(&self, number: usize) -> Option<&str> {
        match &self.tokens.get(number)?.kind {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn is_word(&self, number: usize, word: &str) -> bool {
        self.word(number) == Some(word)
    }

    pub(super) fn is_mark(&self, number: usize, mark: char) -> bool {
        self.tokens.get(number).is_some_and(|token| token.kind == TokenKind::Mark(mark))
    }

    /// Whether `::` begins here.
    pub(super) fn is_path(&self, number: usize) -> bool {
        self.is_mark(number, ':') && self.is_mark(number + 1, ':')
    }

    /// Whether a path begins with this word and goes on.
    pub(super) fn begins_path(&self, number: usize) -> bool {
        let is_name = self.word(number).is_some_and(|word| !is_keyword(word));
        is_name && self.is_path(number + 1) && !self.is_led_to(number)
    }

    /// Whether a word before this one leads to it, as `other::` does and `return ::` does not.
    pub(super) fn is_led_to(&self, number: usize) -> bool {
        if number < 2 || !self.is_path(number - 2) {
            return false;
        }
        match number.checked_sub(3) {
            None => false,
            Some(before) => match self.word(before) {
                Some(word) => !is_keyword(word),
                // The end of a generic: no arrow, behind which a path begins.
                None => {
                    let is_arrow = |mark| before > 0 && self.is_mark(before - 1, mark);
                    self.is_mark(before, '>') && !is_arrow('-') && !is_arrow('=')
                }
            },
        }
    }

    /// The first token of the path whose last word this is.
    pub(super) fn path_begin(&self, last: usize) -> usize {
        let mut begin = last;
        while begin >= 2 && self.is_path(begin - 2) {
            let before = begin.checked_sub(3).filter(|it| self.word(*it).is_some());
            begin = match before {
                Some(word) if self.is_led_to(begin) => word,
                _ => return begin - 2,
            };
        }
        begin
    }

    /// The closing token of the group that opens here.
    pub(super) fn close(&self, number: usize) -> Option<usize> {
        let token = self.tokens.get(number)?;
        (token.kind == TokenKind::Open).then_some(token.close)
    }

    /// The token after this one, or after its group.
    pub(super) fn after(&self, number: usize) -> usize {
        self.close(number).unwrap_or(number) + 1
    }

    pub(super) fn is_close(&self, number: usize) -> bool {
        self.tokens.get(number).is_some_and(|token| token.kind == TokenKind::Close)
    }

    /// Whether the group that opens here is one of braces.
    pub(super) fn is_braces(&self, number: usize) -> bool {
        self.close(number).is_some() && self.text[self.at(number)].starts_with('{')
    }

    /// The first of such marks from here on, outside of groups, before the group around ends.
    pub(super) fn find(&self, from: usize, mark: char) -> Option<usize> {
        let mut number = from;
        while number < self.len() && !self.is_close(number) {
            if self.is_mark(number, mark) {
                return Some(number);
            }
            number = self.after(number);
        }
        None
    }

    /// The place of the token in the text.
    pub(super) fn at(&self, number: usize) -> Range<usize> {
        self.tokens[number].at.clone()
    }

    /// The line of the token, from 1.
    pub(super) fn line(&self, number: usize) -> usize {
        let before = &self.text.as_bytes()[..self.at(number).start];
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// The text from one token to another, both of them in it, in one line.
    pub(super) fn source(&self, from: usize, to: usize) -> String {
        let text = &self.text[self.at(from).start..self.at(to).end];
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Words that a path from the crates on may follow.
fn is_keyword(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "as", "break", "const", "dyn", "else", "for", "if", "impl", "in", "let", "match", "move",
        "mut", "ref", "return", "static", "unsafe", "use", "where", "while", "yield",
    ];
    WORDS.contains(&word)
}
