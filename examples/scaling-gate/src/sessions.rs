//! A map.

use std::collections::BTreeMap;

use crate::sync::Mutex;

/// With fewer stripes, threads wait for each other's locks, and the gate fails.
const STRIPES: usize = 1024;

/// Sessions by their numbers, behind a lock for each stripe of numbers.
///
/// ```
/// let sessions = scaling_gate::Sessions::new();
/// sessions.open(7, "alice".to_owned());
/// assert_eq!(sessions.user(7).as_deref(), Some("alice"));
/// assert!(sessions.close(7));
/// ```
pub struct Sessions {
    stripes: Box<[Stripe]>,
}

#[derive(Default)]
#[repr(align(128))]
struct Stripe(Mutex<BTreeMap<u64, String>>);

impl Sessions {
    /// Creates a map without sessions.
    pub fn new() -> Sessions {
        Sessions { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
    }

    fn stripe(&self, number: u64) -> &Mutex<BTreeMap<u64, String>> {
        &self.stripes[number as usize % STRIPES].0
    }

    /// Adds a session.
    pub fn open(&self, number: u64, user: String) {
        self.stripe(number).lock().unwrap().insert(number, user);
    }

    /// Returns the user of a session.
    pub fn user(&self, number: u64) -> Option<String> {
        self.stripe(number).lock().unwrap().get(&number).cloned()
    }

    /// Removes a session. Returns whether there was one.
    pub fn close(&self, number: u64) -> bool {
        self.stripe(number).lock().unwrap().remove(&number).is_some()
    }
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions::new()
    }
}
