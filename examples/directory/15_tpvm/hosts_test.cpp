// Draws the picture with tasks on three hosts: the test's own networks, each with a directory.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "processes/network_host.hpp"

namespace amalgam::processes {
namespace {

using conformance::child_process;

std::vector<std::string> in(const network_host& where, std::vector<std::string> command) {
    const std::vector<std::string> enter{"nsenter", "--net", "--target",
                                         std::to_string(where.pid())};
    command.insert(command.begin(), enter.begin(), enter.end());
    return command;
}

TEST(tpvm, tasks_on_three_hosts_draw_one_picture) {
    if (const auto why = network_host::why_not(false))
        GTEST_SKIP() << "no network of our own here: " << *why;
    network_host hub, hosts[3];
    hub.run("ip link add switch type bridge");
    hub.run("ip link set switch up");
    std::vector<child_process> directories;
    std::vector<std::string> draw{"env", "AMALGAM_PORTS=shm://,tcp://net0:0?insecure=yes",
                                  TPVM_MANDELBROT};
    const std::string picture =
        std::filesystem::temp_directory_path() / ("tpvm-" + std::to_string(::getpid()) + ".png");
    draw.push_back(picture);
    for (int i = 0; i < 3; ++i) {
        const std::string n = std::to_string(i + 1), address = "10.0.0." + n;
        hosts[i].plug("net0", address + "/24", hub, "to" + n, "");
        hub.run("ip link set to" + n + " master switch");
        std::vector<std::string> words{AMALGAM_TOOL, "directory", "shm://amalgam-directory",
                                       "tcp://" + address + ":7100?insecure=yes"};
        if (i != 0) words.insert(words.end(), {"--join", "tcp://10.0.0.1:7100"});
        directories.push_back(child_process::run(in(hosts[i], words)));
        for (int attempts = 200;; --attempts) {
            ASSERT_GT(attempts, 0) << "no directory";
            child_process asks = child_process::run(
                in(hosts[i], {AMALGAM_TOOL, "ping", "--count", "1", "tcp://" + address + ":7100"}));
            (void)asks.output();
            if (asks.join() == 0) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        std::string how;
        for (const std::string& each : in(hosts[i], {}))
            how += (how.empty() ? "" : " ") + each;
        draw.insert(draw.end(), {"--host", "host" + n + "=" + how});
    }
    child_process leads = child_process::run(in(hosts[0], draw));
    const std::string said = leads.output();
    EXPECT_EQ(leads.join(), 0);
    EXPECT_NE(said.find("40 strips by 6 threads of 3 tasks, identical"), std::string::npos) << said;
    EXPECT_GT(std::filesystem::file_size(picture), 1000u);
    std::filesystem::remove(picture);
    for (child_process& each : directories) {
        each.signal(SIGINT);  // For good.
        EXPECT_EQ(each.join(), 0);
    }
}

}  // namespace
}  // namespace amalgam::processes
