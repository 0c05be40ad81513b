#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace amalgam::detail {

/// For tests: "tcp://127.0.0.1:40001" for each IPv4 tcp port on which this process listens.
inline std::vector<std::string> listening_ports() {
    std::set<std::string> inodes;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string to = std::filesystem::read_symlink(one, gone).string();
        if (to.rfind("socket:[", 0) == 0) inodes.insert(to.substr(8, to.size() - 9));
    }
    std::vector<std::string> found;
    std::ifstream table("/proc/self/net/tcp");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        std::istringstream words(line);
        std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
        words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
            timeout >> inode;
        if (state != "0A" || inodes.count(inode) == 0) continue;
        const auto host = static_cast<std::uint32_t>(std::stoul(local.substr(0, 8), nullptr, 16));
        const unsigned long port = std::stoul(local.substr(9), nullptr, 16);
        std::string at = "tcp://";
        for (int i = 0; i < 4; ++i)
            at += (i > 0 ? "." : "") + std::to_string(host >> 8 * i & 255);
        found.push_back(at + ":" + std::to_string(port));
    }
    return found;
}

}  // namespace amalgam::detail
