#include "why/outside.hpp"

#include <charconv>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/transport.hpp>

#include "call/shown.hpp"

namespace amalgam::tool {
namespace {

namespace fs = std::filesystem;

/// Of an address "tcp://127.0.0.1:7000".
std::optional<unsigned> loopback_port(const std::string& address) {
    const std::string transport = transport_of(uri::parse(address));
    if (transport != "tcp" && transport != "tcp+tls") return std::nullopt;
    const std::size_t colon = address.find(':', address.find("://") + 3 + 1);
    const std::string_view from = std::string_view(address).substr(address.find("://") + 3);
    const bool local = from.starts_with("127.") || from.starts_with("localhost:");
    unsigned port = 0;
    if (!local || colon == address.npos ||
        std::from_chars(address.data() + colon + 1, address.data() + address.size(), port).ec !=
            std::errc{})
        return std::nullopt;
    return port;
}

/// The inode of the socket there, as text: of who listens, else of a connection.
std::optional<std::string> socket_at(unsigned port) {
    std::optional<std::string> connected;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream lines(table);
        std::string line;
        while (std::getline(lines, line)) {
            std::istringstream words(line);
            std::string number, local, remote, state, queues, timer, retransmits, user, timeout,
                inode;
            words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
                timeout >> inode;
            if (inode == "0" || !local.ends_with(fmt::format(":{:04X}", port))) continue;
            if (state == "0A") return inode;
            connected = inode;
        }
    }
    return connected;
}

/// The process that has this socket; empty: it is another user's.
std::string process_with(const std::string& inode) {
    const std::string wanted = fmt::format("socket:[{}]", inode);
    std::error_code none;
    for (const auto& process : fs::directory_iterator("/proc", none)) {
        const std::string id = process.path().filename();
        if (id.find_first_not_of("0123456789") != id.npos) continue;
        for (fs::directory_iterator each(process.path() / "fd", none), end; !none && each != end;
             each.increment(none)) {
            if (fs::read_symlink(each->path(), none) == wanted) return id;
        }
        none.clear();
    }
    return {};
}

struct seen_thread {
    std::string name;
    char state = '?';
};

std::vector<seen_thread> threads_of(const std::string& process) {
    std::vector<seen_thread> all;
    std::error_code none;
    for (const auto& each : fs::directory_iterator("/proc/" + process + "/task", none)) {
        std::ifstream file(each.path() / "stat");
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const std::size_t from = text.find('('), until = text.rfind(") ");
        if (from == text.npos || until == text.npos || until + 2 >= text.size()) continue;
        all.push_back({text.substr(from + 1, until - from - 1), text[until + 2]});
    }
    return all;
}

std::string describe(const std::string& process) {
    std::vector<std::string> running;
    bool stopped = false;
    for (const seen_thread& each : threads_of(process)) {
        stopped = stopped || each.state == 'T' || each.state == 't';
        if (each.state == 'R') running.push_back(fmt::format("\"{}\"", shown(each.name, 64)));
    }
    if (stopped)
        return fmt::format(
            "process {} is stopped, by a signal or a debugger; kill -CONT {} lets "
            "it go on",
            process, process);
    const std::string look =
        fmt::format("gdb -p {} -batch -ex \"thread apply all backtrace\" says where", process);
    if (running.empty())
        return fmt::format(
            "process {} is there, and none of its threads runs: its first stream "
            "blocks in a system call or for a lock; {}",
            process, look);
    return fmt::format(
        "process {} is there, and its threads {} run: one of them holds its first "
        "stream; {}. Let what computes yield, or give it streams of its own "
        "(procedure_options::streams)",
        process, fmt::join(running, ", "), look);
}

}  // namespace

std::string seen_from_outside(const std::string& address) {
    try {
        const auto port = loopback_port(address);
        if (!port) return {};
        const auto inode = socket_at(*port);
        if (!inode) return {};
        const std::string process = process_with(*inode);
        return process.empty() ? std::string() : describe(process);
    } catch (const std::exception&) {  // An address that is none; a process that ended.
        return {};
    }
}

}  // namespace amalgam::tool
