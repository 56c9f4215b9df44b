//! Who types a command, for what is signed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// `$USER`; in a container or a job without it, the name that the machine has for the process's user, or his number.
pub(super) fn whoami() -> String {
    let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| {
        let uid =
            fs::metadata("/proc/self").map_or_else(|_| "unknown".to_owned(), |own| own.uid().to_string());
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        name_of(&uid, &users).unwrap_or_else(|| format!("uid {uid}"))
    })
}

/// The first name of that number in lines as /etc/passwd has them: name, password, number, and more.
fn name_of(uid: &str, users: &str) -> Option<String> {
    let mut named = users.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?))
    });
    named.find(|(name, number)| *number == uid && !name.is_empty()).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_told_by_its_first_name_or_not_at_all() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbroken\n:x:7:\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1000:\n";
        assert_eq!(name_of("0", users).as_deref(), Some("root"));
        assert_eq!(name_of("1000", users).as_deref(), Some("ann"));
        assert_eq!(name_of("7", users), None);
        assert_eq!(name_of("100", users), None);
    }
}
