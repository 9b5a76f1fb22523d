//! [`Why`]: the reason of an error, as data that becomes text when it is displayed.

use core::fmt;
use std::borrow::Cow;
use std::io;

use coreline_topology::NodeId;

/// The reason why something is not available.
///
/// The text is created only when the reason is displayed. Errors also occur in signal handlers,
/// which must not allocate. Creating a reason from a constant allocates nothing.
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
    /// Creates a reason with this text.
    pub const fn new(text: &'static str) -> Self {
        Why { text: Cow::Borrowed(text), node: None, error: None }
    }

    /// Adds a node to the reason, after the text.
    #[must_use]
    pub fn node(self, node: NodeId) -> Self {
        Why { node: Some(node), ..self }
    }

    /// Adds an error of the operating system to the reason.
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
