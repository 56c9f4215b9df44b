//! The keys in force, and which of them a token means.
//!
//! Immutable: a change is another set. A token's `kid` is compared with the names of the keys, byte by byte, and is
//! used for nothing else. Which algorithm a token is checked with says the key.

use std::sync::Arc;

use super::key::{Key, KeyName};
use super::{IdentityError, TokenAlgorithm};

/// Why keys cannot be in force together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// One name for two keys.
    #[error("two keys have the kid {0:?}; a token could not say which of them it means")]
    SameKid(String),
    /// Two nameless ones.
    #[error("two {} keys have no kid; a token could not say which of them it means", .0.name())]
    TwoWithoutKid(TokenAlgorithm),
}

/// What became of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Good from now on.
    pub added: Vec<KeyName>,
    /// No longer good.
    pub retired: Vec<KeyName>,
}

impl KeyChanges {
    /// Whether all is as before.
    pub const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.retired.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct KeySet {
    keys: Vec<Arc<Key>>,
    /// Keys for something else that stood beside them.
    pub(super) skipped: Vec<String>,
}

impl KeySet {
    pub(super) fn new(keys: Vec<Arc<Key>>, skipped: Vec<String>) -> Result<Self, KeySetError> {
        for (index, key) in keys.iter().enumerate() {
            let name = &key.name;
            let mut earlier = keys.iter().take(index).map(|key| &key.name);
            match &name.kid {
                Some(kid) if earlier.any(|other| other.kid.as_ref() == Some(kid)) => {
                    return Err(KeySetError::SameKid(kid.clone()));
                }
                None if earlier.any(|other| other == name) => {
                    return Err(KeySetError::TwoWithoutKid(name.algorithm));
                }
                _ => {}
            }
        }
        Ok(Self { keys, skipped })
    }

    /// The key that a token with this header means: the one with its `kid`; else the one of its algorithm that has no
    /// name; else, if it names none, the only one of its algorithm.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: TokenAlgorithm) -> Result<&Key, IdentityError> {
        if let Some(kid) = kid
            && let Some(key) = self.keys.iter().find(|key| key.name.kid.as_deref() == Some(kid))
        {
            return if key.name.algorithm == algorithm {
                Ok(key)
            } else {
                Err(IdentityError::WrongAlgorithm)
            };
        }
        let mut fitting = self.keys.iter().filter(|key| key.name.algorithm == algorithm);
        if let Some(key) = fitting.clone().find(|key| key.name.kid.is_none()) {
            return Ok(key);
        }
        match (kid, fitting.next(), fitting.next()) {
            (_, None, _) => Err(IdentityError::WrongAlgorithm),
            (Some(_), Some(_), _) => Err(IdentityError::UnknownKey),
            (None, Some(key), None) => Ok(key),
            (None, Some(_), Some(_)) => Err(IdentityError::AmbiguousKey),
        }
    }

    pub(super) fn names(&self) -> Vec<KeyName> {
        self.keys.iter().map(|key| key.name.clone()).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// From an older set to this one.
    pub(super) fn changes_since(&self, older: &Self) -> KeyChanges {
        KeyChanges { added: self.without(older), retired: older.without(self) }
    }

    /// Those that the other set does not have.
    fn without(&self, other: &Self) -> Vec<KeyName> {
        let is_new = |key: &&Arc<Key>| !other.keys.iter().any(|known| known.is_same(key));
        self.keys.iter().filter(is_new).map(|key| key.name.clone()).collect()
    }
}
