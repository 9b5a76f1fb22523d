//! The order of eviction: a doubly linked list of slots, in an array.

/// Slots in the order of their last use. All slots are in the list from the beginning.
pub(crate) struct Lru {
    /// The neighbours of each slot, and behind them those of the list's ends.
    links: Vec<Links>,
}

#[derive(Clone, Copy)]
struct Links {
    newer: u32,
    older: u32,
}

impl Lru {
    pub(crate) fn new(slots: u32) -> Self {
        let link = |at: u32| Links {
            newer: at.checked_sub(1).unwrap_or(slots),
            older: if at == slots { 0 } else { at + 1 },
        };
        Lru { links: (0..=slots).map(link).collect() }
    }

    fn ends(&self) -> u32 {
        self.links.len() as u32 - 1
    }

    /// The slot that was not used for longest.
    pub(crate) fn oldest(&self) -> u32 {
        self.links[self.ends() as usize].newer
    }

    /// Makes a slot the newest one.
    pub(crate) fn touch(&mut self, slot: u32) {
        let newest = self.links[self.ends() as usize].older;
        self.put_between(slot, self.ends(), newest);
    }

    /// Makes a slot the oldest one.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.put_between(slot, self.oldest(), self.ends());
    }

    fn put_between(&mut self, slot: u32, newer: u32, older: u32) {
        if slot == newer || slot == older {
            return;
        }
        let links = self.links[slot as usize];
        self.links[links.newer as usize].older = links.older;
        self.links[links.older as usize].newer = links.newer;
        self.links[slot as usize] = Links { newer, older };
        self.links[newer as usize].older = slot;
        self.links[older as usize].newer = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_use() {
        let mut lru = Lru::new(3);
        let mut order = vec![0, 1, 2];
        for (slot, forget) in [(1, false), (1, false), (0, true), (2, false), (2, true), (0, false)]
        {
            order.retain(|it| *it != slot);
            if forget {
                lru.forget(slot);
                order.push(slot);
            } else {
                lru.touch(slot);
                order.insert(0, slot);
            }
            let (mut found, mut at) = (Vec::new(), lru.ends());
            for _ in 0..3 {
                at = lru.links[at as usize].older;
                found.push(at);
            }
            assert_eq!((&found, lru.oldest()), (&order, order[2]));
        }
    }

    #[test]
    fn one_slot_is_the_oldest_and_the_newest() {
        let mut lru = Lru::new(1);
        lru.touch(0);
        lru.forget(0);
        assert_eq!(lru.oldest(), 0);
    }
}
