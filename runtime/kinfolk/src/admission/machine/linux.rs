//! Linux: `/proc/meminfo`, and the control groups above the process.
//!
//! A group's limit holds for all below it, so every group from the process's own up to the mount is looked at. Both versions can be
//! mounted at once (kernel documentation: admin-guide/cgroup-v2.rst, admin-guide/cgroup-v1/memory.rst, proc_cgroup(5)).

use std::{
    fs::File,
    io::Read,
    path::{Component, Path, PathBuf},
};

/// Files of the kernel are small; the list of mounts is the largest.
const MAX_BYTES: u64 = 1 << 20;

pub(super) fn available_bytes() -> Option<u64> {
    available_under(Path::new("/"))
}

/// What the files under `root` say.
fn available_under(root: &Path) -> Option<u64> {
    let free = mem_available(&read(&root.join("proc/meminfo"))?)?;
    let left = groups(root).iter().filter_map(Group::left).min();
    Some(left.map_or(free, |left| left.min(free)))
}

/// What the kernel reckons can be had without swapping, page cache included.
fn mem_available(meminfo: &str) -> Option<u64> {
    let kib: u64 =
        meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// One control group that limits memory.
struct Group {
    folder: PathBuf,
    version: &'static Version,
}

/// What a version of control groups calls its files.
struct Version {
    limit: &'static str,
    usage: &'static str,
    /// In `memory.stat`: page cache that goes first when memory is short.
    inactive_file: &'static str,
}

static V1: Version =
    Version { limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", inactive_file: "total_inactive_file" };
static V2: Version = Version { limit: "memory.max", usage: "memory.current", inactive_file: "inactive_file" };

impl Group {
    /// Bytes left of its limit; `None` if it has none.
    fn left(&self) -> Option<u64> {
        let number = |name: &str| read(&self.folder.join(name))?.trim().parse::<u64>().ok();
        // `max` is no number; version 1 writes a number beyond any memory.
        let limit = number(self.version.limit)?;
        let used = number(self.version.usage)?;
        let stat = read(&self.folder.join("memory.stat")).unwrap_or_default();
        let inactive = stat.lines().find_map(|line| {
            let (name, n) = line.split_once(' ')?;
            (name == self.version.inactive_file).then(|| n.trim().parse::<u64>().ok())?
        });
        Some(limit.saturating_sub(used.saturating_sub(inactive.unwrap_or(0))))
    }
}

/// Every group the process is in that can limit memory.
fn groups(root: &Path) -> Vec<Group> {
    let (Some(own), Some(mounts)) = (read(&root.join("proc/self/cgroup")), read(&root.join("proc/self/mountinfo")))
    else {
        return Vec::new();
    };
    mounts.lines().filter_map(Mount::parse).flat_map(|mount| mount.groups(root, &own)).collect()
}

/// A mounted hierarchy of groups that have memory limits.
struct Mount<'a> {
    version: &'static Version,
    /// The group that is mounted: not the topmost one in some containers.
    group: &'a str,
    point: &'a str,
}

impl<'a> Mount<'a> {
    /// Reads a line of `mountinfo`: id, parent, device, root, mount point, options, optional fields, `-`, type, source, options.
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let version = match (file_system.next()?, file_system.nth(1)) {
            ("cgroup2", _) => &V2,
            ("cgroup", Some(controllers)) if controllers.split(',').any(|name| name == "memory") => &V1,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3);
        Some(Mount { version, group: fields.next()?, point: fields.next()? })
    }

    /// The groups from the process's own up to the one that is mounted. `own` is the text of `proc/self/cgroup`.
    fn groups(&self, root: &Path, own: &str) -> Vec<Group> {
        let is_v2 = std::ptr::eq(self.version, &V2);
        let path = own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_of_mount =
                if is_v2 { controllers.is_empty() } else { controllers.split(',').any(|name| name == "memory") };
            is_of_mount.then_some(path)
        });
        let below = Path::new(path.unwrap_or("/"));
        let below = below.strip_prefix(self.group).or_else(|_| below.strip_prefix("/")).unwrap_or(Path::new(""));
        // A group outside what is mounted begins with `..` and cannot be looked at.
        let is_inside = below.components().all(|part| matches!(part, Component::Normal(_)));
        let below = if is_inside { below } else { Path::new("") };
        let point = root.join(self.point.trim_start_matches('/'));
        below.ancestors().map(|group| Group { folder: point.join(group), version: self.version }).collect()
    }
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MEMINFO: &str = "MemTotal:       16000000 kB\nMemFree:  1000 kB\nMemAvailable:    8000000 kB\n";
    const FREE: u64 = 8_000_000 * 1024;
    const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1_MOUNT: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Option<u64>) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!(available_under(root.path()), expected, "{files:?}");
    }

    #[test]
    fn without_groups_it_is_what_the_kernel_reckons() {
        check(&[("proc/meminfo", MEMINFO)], Some(FREE));
        check(&[], None);
        check(&[("proc/meminfo", "MemFree: 5 kB\n")], None);
        check(&[("proc/meminfo", "MemAvailable: many kB\n")], None);
        check(&[("proc/meminfo", "MemAvailable: 18446744073709551615 kB\n")], None);
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let mut files = vec![
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/system.slice/kinfolk.service\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/system.slice/kinfolk.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/kinfolk.service/memory.current", "5000\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "1000000\n"),
            ("sys/fs/cgroup/system.slice/memory.current", "400000\n"),
        ];
        check(&files, Some(600_000));
        // Page cache that can go is not in the way.
        files.push(("sys/fs/cgroup/system.slice/memory.stat", "anon 1\ninactive_file 150000\nactive_file 7\n"));
        check(&files, Some(750_000));
        files[3].1 = "5001\n";
        check(&files, Some(1));
        files[3].1 = "4000\n";
        check(&files, Some(0));
    }

    #[test]
    fn the_first_version_is_looked_at_beside_the_second() {
        let no_limit = "9223372036854771712\n";
        let mounts = [V1_MOUNT, V2_MOUNT].concat();
        let mut files = vec![
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "4:memory:/app\n3:cpuset:/app\n0::/\n"),
            ("proc/self/mountinfo", &mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", no_limit),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
            ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", no_limit),
            ("sys/fs/cgroup/memory/app/memory.usage_in_bytes", "300\n"),
            ("sys/fs/cgroup/memory/app/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n"),
        ];
        check(&files, Some(FREE));
        files[5].1 = "1000\n";
        check(&files, Some(750));
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount() {
        // The group is named as the host names it, and mounted without what is above it.
        let mount = V1_MOUNT.replace("/ /sys", "/docker/abc /sys");
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "4:memory:/docker/abc\n"),
            ("proc/self/mountinfo", &mount),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n"),
        ];
        check(&files, Some(900));
        // A group outside the namespace is not followed out of it.
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/../../host\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "100\n"),
            ("sys/host/memory.max", "1\n"),
            ("sys/host/memory.current", "1\n"),
        ];
        check(&files, Some(900));
    }
}
