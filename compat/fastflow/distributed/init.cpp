#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include <ff/distributed/init.hpp>
#include <ff/ff.hpp>

#include "groups.hpp"
#include "network.hpp"

namespace ff::detail {
namespace {

/// The value of option `name` at argv[at]: after "=", or the next argument. Moves `at` past it.
/// Null: argv[at] is something else.
const char* option(const std::string& name, int argc, char** argv, int& at) {
    const std::string text = argv[at];
    if (text.compare(0, name.size(), name) != 0) return nullptr;
    if (text.size() > name.size() && text[name.size()] == '=') return argv[at] + name.size() + 1;
    if (text.size() != name.size()) return nullptr;
    return at + 1 < argc ? argv[++at] : "";
}

/// Of a process that mpirun started.
std::string group_of_rank(const group_config& config) {
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
        const char* const text = std::getenv(name);
        if (text == nullptr) continue;
        const auto rank = std::strtoul(text, nullptr, 10);
        if (rank < config.groups.size()) return config.groups[rank].name;
    }
    return {};
}

int refuse(const std::string& sentence) {
    error("%s\n", sentence.c_str());
    return -1;
}

std::string names_of(const group_config& config) {
    std::string all;
    for (const group_settings& each : config.groups)
        all += (all.empty() ? "" : ", ") + each.name;
    return all;
}

}  // namespace

int dff_init(int& argc, char**& argv, const dff_defaults& defaults) {
    std::signal(SIGPIPE, SIG_IGN);
    std::string file;
    std::string name;
    group_registry& all = groups();
    int kept = 0;
    for (int at = 0; at < argc; ++at) {
        char* const whole = argv[at];
        if (const char* value = option("--DFF_Config", argc, argv, at))
            file = value;
        else if (const char* group = option("--DFF_GName", argc, argv, at))
            name = group;
        else if (const char* to = option("--DFF_dryrun", argc, argv, at))
            all.dry_run_file = to;
        else if (option("--DFF_PrintGroup", argc, argv, at) == nullptr)
            argv[kept++] = whole;
    }
    argc = kept;
    argv[argc] = nullptr;
    distributed_run = &run_distributed;
    if (!all.dry_run_file.empty()) return 0;
    if (file.empty())
        return refuse(
            "DFF_Init: there is no configuration file; example: --DFF_Config=groups.json");
    try {
        all.config = load_group_config(file, defaults);
    } catch (const std::exception& wrong) {
        return refuse(wrong.what());
    }
    if (name.empty()) name = group_of_rank(all.config);
    if (name.empty())
        return refuse("DFF_Init: the group to run is not named; example: --DFF_GName=" +
                      all.config.groups.front().name + ", or start all groups: amalgam run -c " +
                      file + " -- PROGRAM");
    const group_settings* const mine = all.config.find(name);
    if (mine == nullptr)
        return refuse(file + " has no group named " + name + ", expected one of " +
                      names_of(all.config));
    all.mine = name;
    if (!mine->thread_mapping.empty())
        threadMapper::instance()->setMappingList(mine->thread_mapping.c_str());
    return 0;
}

int write_dry_run(ff_node& whole) {
    group_registry& all = groups();
    const auto net = expand(whole, false, [&all](const ff_node& node) -> const std::string* {
        const auto found = all.of.find(&node);
        return found != all.of.end() ? &found->second : nullptr;
    });
    if (net == nullptr) return -1;
    std::ofstream file(all.dry_run_file);
    file << "{\n  \"groups\": [";
    int port = 8000;
    const char* separator = "\n";
    for (const std::string& name : all.names) {
        const auto host = all.hosts.find(name);
        file << separator << "    {\"name\": \"" << name << "\", \"endpoint\": \""
             << (host != all.hosts.end() ? host->second : "localhost") << ":" << port++
             << "\", \"includedNodes\": [";
        const char* comma = "";
        for (std::size_t i = 0; i != net->runners.size(); ++i) {
            if (net->runners[i]->group != name) continue;
            file << comma << "\"" << i << "\"";
            comma = ", ";
        }
        file << "]}";
        separator = ",\n";
    }
    file << "\n  ]\n}\n";
    if (!file.flush())
        return refuse(all.dry_run_file + ": cannot be written, expected a file for --DFF_dryrun");
    return 0;
}

}  // namespace ff::detail
