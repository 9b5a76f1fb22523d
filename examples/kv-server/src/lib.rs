//! A key-value server. Each shard is data of one worker of [`coreline::Workers`], so it needs no
//! lock. A request is a line, and so is its answer:
//!
//! | request | answer |
//! |---|---|
//! | `GET KEY` | `VALUE ...` or `NONE` |
//! | `SET KEY VALUE` | `OK` |
//! | `DEL KEY` | `1`, or `0` if there was none |
//! | `INCR KEY NUMBER` | the new number |
//! | `MGET KEY...` | the values of at most 128 keys in this order, `-` for none; no snapshot |
//! | `MOVE FROM TO NUMBER` | `OK`: subtracted from one number and added to the other |
//! | `LEN` | the number of keys |
//! | anything else, and what cannot be done | `ERR` and the reason |

pub mod server;
mod store;

use std::future::Future;

use coreline::call::{CallError, Cancelled};

use crate::server::Answers;
pub use store::{Shard, Store};

/// The most keys of `MGET`. Else a line could ask for thousands of values as long as itself.
const MOST: usize = 128;

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no request.
    #[error("no such request; see the documentation for GET, SET, DEL, INCR, MGET, MOVE, LEN")]
    Request,
    /// A number was needed.
    #[error("a number or a value is no integer of the allowed size")]
    Number,
    /// There is not as much to move.
    #[error("the value to move from is smaller than the number")]
    Short,
    /// There is no room for a new key.
    #[error("no room for another key in its shard; delete others")]
    Keys,
    /// The workers refused it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The workers ended first.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Answers for Store {
    fn answer(&self, request: &str) -> impl Future<Output = String> + Send {
        let words: Vec<String> = request.split_ascii_whitespace().map(str::to_owned).collect();
        async move {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.run(&words).await.unwrap_or_else(|why| format!("ERR {why}"))
        }
    }
}

impl Store {
    async fn run(&self, words: &[&str]) -> Result<String, Refusal> {
        Ok(match *words {
            ["GET", key] => {
                let value = self.on(key, Shard::get)?.await;
                value.map_or("NONE".into(), |value| format!("VALUE {value}"))
            }
            ["SET", key, value] => {
                let value = value.to_owned();
                self.on(key, |shard, key| shard.set(key, value))?.await?;
                "OK".into()
            }
            ["DEL", key] => u8::from(self.on(key, Shard::delete)?.await).to_string(),
            ["INCR", key, number] => {
                let number = number.parse::<i32>().map_err(|_| Refusal::Number)?;
                self.on(key, move |shard, key| shard.add(key, number.into()))?.await?.to_string()
            }
            ["MGET", ref keys @ ..] if (1..=MOST).contains(&keys.len()) => {
                // All are sent before the first is awaited, so the shards work at the same time.
                let ask = |key: &&str| self.on(key, Shard::get);
                let asked = keys.iter().map(ask).collect::<Result<Vec<_>, _>>()?;
                let mut values = Vec::new();
                for reply in asked {
                    values.push(reply.await.unwrap_or("-".into()));
                }
                values.join(" ")
            }
            ["MOVE", from, to, number] => {
                let number = number.parse::<u32>().map_err(|_| Refusal::Number)?;
                self.transfer(from, to, number)?.await??;
                "OK".into()
            }
            ["LEN"] => self.len()?.await.into_iter().map(|(_, len)| len).sum::<usize>().to_string(),
            _ => return Err(Refusal::Request),
        })
    }
}
