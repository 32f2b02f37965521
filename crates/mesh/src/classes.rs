//! Tools for linear-time topology: union-find and bucket sort.

/// A partition of `0..len` into classes that can be joined (union-find). The representative of a
/// class is its lowest member, so it does not depend on the order of the joins.
pub(crate) struct Classes {
    parent: Vec<u32>,
}

impl Classes {
    /// Creates a partition with every number below `len` in its own class.
    pub(crate) fn new(len: usize) -> Self {
        Self { parent: (0..len as u32).collect() }
    }

    /// The lowest member of the class of `member`.
    pub(crate) fn find(&mut self, mut member: u32) -> u32 {
        loop {
            let parent = self.parent[member as usize];
            if parent == member {
                return member;
            }
            let grandparent = self.parent[parent as usize];
            self.parent[member as usize] = grandparent;
            member = grandparent;
        }
    }

    /// Joins the classes of `a` and `b`.
    pub(crate) fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }
}

/// Groups items by a small integer key and keeps their order within a group. The items of key `k`
/// are `items[offsets[k]..offsets[k + 1]]`. There must be fewer than `u32::MAX` items.
pub(crate) fn bucket<T: Copy + Default>(
    keys: usize,
    items: impl Iterator<Item = (u32, T)> + Clone,
) -> (Vec<u32>, Vec<T>) {
    // Counts are stored two places up, so that filling moves each count to the start of its bucket.
    let mut offsets = vec![0u32; keys + 2];
    for (key, _) in items.clone() {
        offsets[key as usize + 2] += 1;
    }
    for key in 2..offsets.len() {
        offsets[key] += offsets[key - 1];
    }
    let total = offsets[keys + 1] as usize;
    let mut grouped = vec![T::default(); total];
    for (key, item) in items {
        let place = &mut offsets[key as usize + 1];
        grouped[*place as usize] = item;
        *place += 1;
    }
    offsets.pop();
    (offsets, grouped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_by_their_lowest_member() {
        let mut classes = Classes::new(7);
        for (a, b) in [(6, 4), (4, 2), (5, 3), (2, 6)] {
            classes.join(a, b);
        }
        let names: Vec<u32> = (0..7).map(|member| classes.find(member)).collect();
        assert_eq!(names, [0, 1, 2, 3, 2, 3, 2]);
    }

    #[test]
    fn buckets_keep_the_order_within_a_key() {
        let items = [(2, 'a'), (0, 'b'), (2, 'c'), (3, 'd'), (0, 'e')];
        let (offsets, grouped) = bucket(5, items.into_iter());
        assert_eq!(offsets, [0, 2, 2, 4, 5, 5]);
        assert_eq!(grouped, ['b', 'e', 'a', 'c', 'd']);
        assert_eq!(bucket(0, std::iter::empty::<(u32, u8)>()), (vec![0], vec![]));
    }
}
