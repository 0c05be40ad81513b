#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/transport.hpp>
#include <amalgam/version.hpp>

#include "commands.hpp"

namespace amalgam::tool {
namespace {

struct info_options {
    std::string explain;
    bool json = false;
};

void print_table(const transport_registry& registry) {
    fmt::print("{:<8} {:<6} {}\n", "name", "here", "description");
    for (const auto& one : registry.describe()) {
        fmt::print("{:<8} {:<6} {}\n", one.name, one.usable ? "yes" : "no",
                   one.usable ? one.summary : one.why_not);
        for (const auto& detail : one.details)
            fmt::print("{:<15} - {}\n", "", detail);
        if (!one.example.empty()) fmt::print("{:<15} - example: {}\n", "", one.example);
    }
}

void print_all_as_json(const transport_registry& registry) {
    auto all = nlohmann::ordered_json::array();
    for (const auto& one : registry.describe()) {
        nlohmann::ordered_json object{{"name", one.name},
                                      {"usable", one.usable},
                                      {"summary", one.summary},
                                      {"details", one.details},
                                      {"example", one.example}};
        if (!one.usable) object["why_not"] = one.why_not;
        all.push_back(std::move(object));
    }
    fmt::print("{}\n", nlohmann::ordered_json{{"version", version()}, {"transports", all}}.dump(2));
}

const char* reach_of(const capabilities& can) {
    return can.between_hosts       ? "other hosts"
           : can.between_processes ? "other processes on this host"
                                   : "this process only";
}

const char* atomics_of(const capabilities& can) {
    switch (can.atomics) {
        case atomic_mode::native:
            return "by this processor on allocated memory, else by the target's progress";
        case atomic_mode::emulated:
            return "emulated by messages, processed by the target's progress";
        case atomic_mode::none:
            break;
    }
    return "unsupported, as are notified puts: the plug-in is older";
}

const char* name_of(rma_mode how) {
    return how == rma_mode::cross_memory ? "cross_memory"
           : how == rma_mode::one_sided  ? "one_sided"
                                         : "messages";
}

const char* sentence_of(rma_mode how) {
    return how == rma_mode::cross_memory
               ? "copied directly between processes by the kernel, one copy"
           : how == rma_mode::one_sided
               ? "by the network device, which checks keys, without the target's progress"
               : "emulated by messages, processed by the target's progress";
}

const char* encryption_of(const capabilities& can) {
    return can.transport == "tcp+tls" ? "yes, by TLS 1.3, between peers that prove who they are"
           : is_encrypted(can.transport)
               ? "yes, packets, under keys of TLS 1.3, between peers that prove "
                 "who they are"
               : "no";
}

/// Really opens the port, and reports what a program would get.
void explain(const transport_registry& registry, const std::string& where, bool json) {
    const std::unique_ptr<port> opened =
        of_argument("--explain", [&] { return registry.open(where).value(); });
    const capabilities& can = opened->can();
    if (json) {
        nlohmann::ordered_json object{
            {"uri", where},
            {"explanation", opened->explain()},
            {"address", nullptr},
            {"encrypted", is_encrypted(can.transport)},
            {"rma", name_of(can.rma)},
            {"atomics", can.atomics == atomic_mode::native     ? "native"
                        : can.atomics == atomic_mode::emulated ? "messages"
                                                               : "none"},
            {"inline_bytes", can.inline_bytes},
            {"max_message_bytes", can.max_message_bytes},
            {"reaches", reach_of(can)}};
        if (can.listens) object["address"] = opened->address();
        fmt::print("{}\n", object.dump(2));
        return;
    }
    fmt::print("{}\n", opened->explain());
    fmt::print("  address:   {}\n",
               can.listens ? opened->address()
                           : "none: it can connect to peers, but peers cannot look it up");
    fmt::print("  encrypted: {}\n", encryption_of(can));
    fmt::print("  put, get:  {}\n", sentence_of(can.rma));
    fmt::print("  atomics:   {}\n", atomics_of(can));
    fmt::print("  messages:  copied up to {} bytes, at most {} bytes\n", can.inline_bytes,
               can.max_message_bytes);
    fmt::print("  reaches:   {}\n", reach_of(can));
}

}  // namespace

void add_info(CLI::App& app) {
    auto options = std::make_shared<info_options>();
    auto* command =
        app.add_subcommand("info", "List the transports and what each supports on this host");
    command->footer("example: amalgam info --explain tcp://127.0.0.1:0");
    command->add_option("--explain", options->explain,
                        "Open this URI and report what was chosen, and why");
    command->add_flag("--json", options->json, "Print JSON");
    command->callback([options] {
        const auto registry = transport_registry::installed();
        if (!options->explain.empty())
            explain(registry, options->explain, options->json);
        else if (options->json)
            print_all_as_json(registry);
        else
            print_table(registry);
    });
}

}  // namespace amalgam::tool
