//! [`Why`]: what an error found, as data that becomes text when it is shown.

use core::fmt;
use std::borrow::Cow;
use std::io;

use coreline_topology::NodeId;

/// Why something is not available.
///
/// It becomes text only when it is shown. Errors are also made in signal handlers, where nothing
/// may allocate, and making one from a constant allocates nothing.
///
/// ```
/// use coreline_topology::NodeId;
/// use coreline_world::Why;
///
/// let refused = std::io::Error::from_raw_os_error(1);
/// let why = Why::new("mbind to").node(NodeId::new(3)).because(&refused);
/// assert!(why.to_string().starts_with("mbind to node 3: "));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    text: Cow<'static, str>,
    node: Option<NodeId>,
    /// The system's number of the error.
    error: Option<i32>,
}

impl Why {
    /// The text of the reason.
    pub const fn new(text: &'static str) -> Self {
        Why { text: Cow::Borrowed(text), node: None, error: None }
    }

    /// The same, for this node, which comes after the text.
    #[must_use]
    pub fn node(self, node: NodeId) -> Self {
        Why { node: Some(node), ..self }
    }

    /// The same, for a reason that the system gave.
    #[must_use]
    pub fn because(self, error: &io::Error) -> Self {
        Why { error: error.raw_os_error(), ..self }
    }
}

impl From<String> for Why {
    fn from(text: String) -> Self {
        Why { text: Cow::Owned(text), node: None, error: None }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if let Some(node) = self.node {
            write!(f, " {node}")?;
        }
        match self.error {
            Some(error) => write!(f, ": {}", io::Error::from_raw_os_error(error)),
            None => Ok(()),
        }
    }
}
