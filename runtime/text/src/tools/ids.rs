//! Ids for calls to which the model gives none.

/// Letters and digits that every template accepts.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Mistral's templates refuse ids of another length or with other characters; no other template minds.
const ID_LEN: usize = 9;

/// Makes the ids of one reply: the same for the same seed and place, so that they do not depend on how the text
/// arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallIds {
    seed: u64,
}

impl CallIds {
    pub(super) fn new(seed: u64) -> CallIds {
        CallIds { seed }
    }

    /// The id of a call by its place in the reply.
    pub(super) fn id(self, index: usize) -> String {
        let mut bits = mix(mix(self.seed).wrapping_add(index as u64));
        let digits = std::iter::repeat_with(|| {
            let digit = bits % ALPHABET.len() as u64;
            bits /= ALPHABET.len() as u64;
            char::from(ALPHABET[digit as usize])
        });
        digits.take(ID_LEN).collect()
    }
}

/// The output function of SplitMix64.
fn mix(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_nine_letters_or_digits_and_differ() {
        let ids: Vec<String> = (0..100).map(|index| CallIds::new(7).id(index)).collect();
        assert!(ids.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())));
        let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert_ne!(CallIds::new(8).id(0), ids[0]);
        assert_eq!(CallIds::new(7).id(3), ids[3]);
    }
}
