#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <ff/distributed/init.hpp>

namespace ff {
class ff_node;
}

namespace ff::detail {

/// A group of the configuration file.
struct group_settings {
    std::string name;
    std::string address;  ///< A URI.
    std::string thread_mapping;
    std::size_t batch_size = 1;
    std::size_t batch_bytes = 0;
    std::size_t on_the_fly = 0;           ///< Messages between stages.
    std::size_t internal_on_the_fly = 0;  ///< The same between the sets of an all-to-all.
    bool asks_on_the_fly = false;         ///< The file or the program has said how many.
};

struct group_config {
    std::vector<group_settings> groups;
    double join_seconds = 60;

    const group_settings* find(const std::string& name) const;
};

/// Reads FastFlow's file. Failure: throws std::runtime_error, with one sentence.
group_config load_group_config(const std::string& path, const dff_defaults& defaults);

/// What a program has said of its groups, in this process.
///
/// Threads: those of the program that builds blocks: one at a time.
struct group_registry {
    std::map<const ff_node*, std::string> of;
    std::set<std::string> names;
    std::map<std::string, std::string> hosts;  ///< For --DFF_dryrun.
    std::vector<std::string> faults;
    std::string mine;
    std::string dry_run_file;
    group_config config;
};
group_registry& groups();

/// Runs the groups' nodes of `whole` that are this process's. False: `whole` is no part of them,
/// and runs here alone.
bool run_distributed(ff_node& whole, int& result);
/// Writes what --DFF_dryrun asks for.
int write_dry_run(ff_node& whole);

}  // namespace ff::detail
