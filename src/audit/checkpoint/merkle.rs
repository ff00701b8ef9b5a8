//! Merkle trees as in RFC 6962, over leaves that come one after the other: memory for one hash of each level.

use crate::chain::{Hash, sha256};

/// The hash of a leaf.
pub(super) fn leaf(bytes: &[u8]) -> Hash {
    sha256(&[&[0], bytes])
}

fn node(left: &Hash, right: &Hash) -> Hash {
    sha256(&[&[1], left, right])
}

/// A tree that grows to the right.
#[derive(Default)]
pub(super) struct Tree {
    leaves: u64,
    /// The roots of its full subtrees, the largest first: one for each bit of the number of leaves.
    peaks: Vec<Peak>,
    /// Number of the leaf that is to be proven, and what stands beside it on the way up so far.
    path: Option<Path>,
}

#[derive(Clone, Copy)]
struct Peak {
    root: Hash,
    has_marked: bool,
}

/// The way from a leaf to the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// Number of the leaf, from 0.
    pub index: u64,
    /// The hashes that stand beside it, from the leaf up.
    pub beside: Vec<Hash>,
}

impl Tree {
    /// Adds a leaf by its hash; the path of the last one that was marked is kept.
    pub fn push(&mut self, leaf: Hash, marked: bool) {
        if marked {
            self.peaks.iter_mut().for_each(|peak| peak.has_marked = false);
            self.path = Some(Path { index: self.leaves, beside: Vec::new() });
        }
        let mut peak = Peak { root: leaf, has_marked: marked };
        let mut full = self.leaves;
        while full & 1 == 1 {
            let Some(left) = self.peaks.pop() else { break };
            peak = self.join(left, peak);
            full >>= 1;
        }
        self.peaks.push(peak);
        self.leaves += 1;
    }

    /// The number of leaves, their root, which is the hash of nothing where there are none, and the marked one's path.
    pub fn finish(mut self) -> (u64, Hash, Option<Path>) {
        let Some(mut peak) = self.peaks.pop() else { return (0, sha256(&[]), None) };
        while let Some(left) = self.peaks.pop() {
            peak = self.join(left, peak);
        }
        (self.leaves, peak.root, self.path)
    }

    fn join(&mut self, left: Peak, right: Peak) -> Peak {
        if let Some(path) = self.path.as_mut().filter(|_| left.has_marked || right.has_marked) {
            path.beside.push(if left.has_marked { right.root } else { left.root });
        }
        Peak { root: node(&left.root, &right.root), has_marked: left.has_marked || right.has_marked }
    }
}

impl Path {
    /// The root of a tree of so many leaves in which this path leads up from the leaf; None where it cannot.
    pub fn root(&self, leaf: Hash, leaves: u64) -> Option<Hash> {
        let (mut at, mut last) = (self.index, leaves.checked_sub(1)?);
        if at > last {
            return None;
        }
        let mut root = leaf;
        for beside in &self.beside {
            if last == 0 {
                return None;
            }
            if at & 1 == 1 || at == last {
                root = node(beside, &root);
                while at & 1 == 0 && at != 0 {
                    at >>= 1;
                    last >>= 1;
                }
            } else {
                root = node(&root, beside);
            }
            at >>= 1;
            last >>= 1;
        }
        (last == 0).then_some(root)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chain::{hex, unhex};

    /// The inputs and roots of the reference tests of Certificate Transparency, which RFC 6962 specifies.
    #[test]
    fn the_roots_are_those_of_certificate_transparency() {
        let inputs: [&[u8]; 8] = [
            b"",
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f],
        ];
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        for (leaves, root) in roots.iter().enumerate() {
            let mut tree = Tree::default();
            inputs[..leaves].iter().for_each(|input| tree.push(leaf(input), false));
            assert_eq!(hex(&tree.finish().1), *root, "{leaves} leaves");
        }
        // The path of leaf 5 of 8, from the same tests.
        let mut tree = Tree::default();
        inputs.iter().enumerate().for_each(|(n, input)| tree.push(leaf(input), n == 5));
        let path = tree.finish().2.unwrap();
        let beside = [
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ];
        assert_eq!(path.beside, beside.map(|digits| unhex(digits).unwrap()));
    }

    /// The definition: the left subtree is the largest full one that is smaller than the whole.
    fn naive(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => sha256(&[]),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
                node(&naive(left), &naive(right))
            }
        }
    }

    proptest! {
        #[test]
        fn a_tree_has_the_root_of_its_definition_and_every_path_leads_there(count in 1..200u64, at in 0..200u64, wrong in 0..256usize) {
            let at = at % count;
            let leaves: Vec<_> = (0..count).map(|n| leaf(&n.to_be_bytes())).collect();
            let mut tree = Tree::default();
            for (n, leaf) in (0..).zip(&leaves) {
                tree.push(*leaf, n == at);
            }
            let (size, root, path) = tree.finish();
            let path = path.unwrap();
            prop_assert_eq!((size, root), (count, naive(&leaves)));
            let of = leaves[at as usize];
            prop_assert_eq!(path.root(of, count), Some(root));
            // And no other leaf, place or neighbour does.
            let mut flipped = of;
            flipped[wrong / 8] ^= 1 << (wrong % 8);
            prop_assert_ne!(path.root(flipped, count), Some(root));
            for index in (0..count).filter(|&index| index != at) {
                prop_assert_ne!(Path { index, ..path.clone() }.root(of, count), Some(root));
            }
            for n in 0..path.beside.len() {
                let mut other = path.clone();
                other.beside[n][wrong / 8] ^= 1 << (wrong % 8);
                prop_assert_ne!(other.root(of, count), Some(root));
                other = path.clone();
                other.beside.remove(n);
                prop_assert_ne!(other.root(of, count), Some(root));
            }
        }
    }
}
