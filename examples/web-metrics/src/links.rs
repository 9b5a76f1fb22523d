//! The links, which requests mostly read.

use coreline::lock::BiasedRwLock;

/// A bounded number of URLs. Once reads dominate, a reader writes to memory of its own CPU only.
#[derive(Debug)]
pub struct Links {
    urls: BiasedRwLock<Vec<String>>,
    most: usize,
}

impl Links {
    /// No links, and room for this many.
    pub fn new(most: usize) -> Self {
        Links { urls: BiasedRwLock::new(Vec::new()), most }
    }

    /// Adds a link, and returns its number; `None` if there is no room.
    pub fn add(&self, url: String) -> Option<usize> {
        let mut urls = self.urls.write();
        let link = urls.len();
        (link < self.most).then(|| {
            urls.push(url);
            link
        })
    }

    /// The URL of a link.
    pub fn url(&self, link: usize) -> Option<String> {
        self.urls.read().get(link).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_numbered_until_they_are_full() {
        let links = Links::new(2);
        assert_eq!(["a", "b", "c"].map(|url| links.add(url.into())), [Some(0), Some(1), None]);
        assert_eq!((links.url(1).as_deref(), links.url(2)), (Some("b"), None));
    }
}
