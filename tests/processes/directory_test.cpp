// Directories as users see them: the tool, processes, hosts. All in networks of the test, where the
// name of a host's directory is unique.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "processes/network_host.hpp"
#include "temp_folder.hpp"

namespace amalgam::processes {
namespace {

using conformance::child_process;

// Directories end after five seconds without contexts. On a busy machine a command takes longer
// than two, and one that has ended by then is not started again as it was.
const std::vector<std::string> is_there{"ping", "--count", "1", "shm://amalgam-directory"};

class directory_test : public testing::Test {
protected:
    void SetUp() override {
        if (const auto why = network_host::why_not(false))
            GTEST_SKIP() << "no network of our own here: " << *why;
    }

    static child_process run(const network_host& where, const std::vector<std::string>& command) {
        std::vector<std::string> words{"nsenter",  "--net",
                                       "--target", std::to_string(where.pid()),
                                       "env",      "AMALGAM_TOOL=" AMALGAM_TOOL};
        words.insert(words.end(), command.begin(), command.end());
        return child_process::run(words);
    }
    static child_process member(const network_host& where, std::vector<std::string> words) {
        words.insert(words.begin(), AMALGAM_DIRECTORY_MEMBER);
        return run(where, words);
    }
    static child_process tool(const network_host& where, std::vector<std::string> words) {
        words.insert(words.begin(), AMALGAM_TOOL);
        return run(where, words);
    }
    /// Retries until the exit code is that, for changes that take a moment.
    static testing::AssertionResult soon(int code, const network_host& where,
                                         const std::vector<std::string>& words) {
        std::string said;
        for (int attempts = 200; attempts > 0; --attempts) {
            child_process one = tool(where, words);
            said = one.output();
            if (one.join() == code) return testing::AssertionSuccess();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        return testing::AssertionFailure() << said;
    }
    /// For good: forgets how it was started.
    static void end(child_process& directory) {
        directory.signal(SIGINT);
        EXPECT_EQ(directory.join(), 0);
    }
    static std::string answer(const network_host& where, const std::string& name) {
        child_process asks = member(where, {"ask", name, "hello"});
        const std::string said = asks.output();
        EXPECT_EQ(asks.join(), 0);
        return said;
    }
};

TEST_F(directory_test, the_first_context_of_a_host_starts_its_directory_and_the_last_ends_it) {
    const network_host host;
    // At the same time: several may find none, but only one directory remains.
    std::vector<child_process> boxes;
    for (const char* name : {"a", "b", "c"})
        boxes.push_back(member(host, {"box", name}));
    for (const std::string name : {"a", "b", "c"})
        EXPECT_EQ(answer(host, name), name + " got hello\n");
    child_process all = tool(host, {"find", "name"});
    const std::string said = all.output();
    EXPECT_EQ(all.join(), 0);
    for (const char* each : {"{name: \"a\"}", "{name: \"b\"}", "{name: \"c\"}"})
        EXPECT_NE(said.find(each), std::string::npos) << said;
    for (child_process& each : boxes)
        each.kill();
    EXPECT_TRUE(soon(1, host, {"find", "name=a"}));
    EXPECT_TRUE(soon(1, host, is_there)) << "it does not end";
}

TEST_F(directory_test, a_killed_directory_is_started_again_and_has_what_it_had) {
    const network_host host;
    child_process directory = tool(host, {"directory", "--end-after", "5"});
    ASSERT_TRUE(soon(0, host, is_there));
    child_process box = member(host, {"box", "x"});
    EXPECT_EQ(answer(host, "x"), "x got hello\n");
    directory.kill();
    EXPECT_EQ(answer(host, "x"), "x got hello\n");
    EXPECT_TRUE(soon(0, host, {"find", "name=x"}));
}

TEST_F(directory_test, a_killed_directory_is_started_again_as_it_was) {
    const network_host host;
    const std::vector<std::string> on_the_network{"ping", "--count", "1", "tcp://127.0.0.1:7100"};
    // It ends by itself after the test.
    child_process directory = tool(
        host, {"directory", "shm://amalgam-directory", "tcp://127.0.0.1:7100", "--end-after", "5"});
    ASSERT_TRUE(soon(0, host, on_the_network));
    child_process box = member(host, {"box", "x"});
    EXPECT_EQ(answer(host, "x"), "x got hello\n");
    directory.kill();
    EXPECT_TRUE(soon(0, host, on_the_network)) << "a context that had it starts it again";
    EXPECT_TRUE(soon(0, host, {"find", "name=x"}));
    // It makes way for one started by hand, to which all return.
    child_process other = tool(
        host, {"directory", "shm://amalgam-directory", "tcp://127.0.0.1:7101", "--end-after", "5"});
    EXPECT_TRUE(soon(0, host, {"ping", "--count", "1", "tcp://127.0.0.1:7101"}));
    EXPECT_TRUE(soon(1, host, on_the_network));
    EXPECT_TRUE(soon(0, host, {"find", "name=x"}));
    // That one does not make way, and says what to do.
    child_process third = tool(host, {"directory"});
    const std::string said = third.output();
    EXPECT_EQ(third.join(), 1);
    EXPECT_NE(said.find("stop it first"), std::string::npos) << said;
    // No context knows it any more, yet a new one restarts it in the same way.
    box.kill();
    other.kill();
    EXPECT_TRUE(soon(1, host, {"find", "name=x"}));
    EXPECT_TRUE(soon(0, host, {"ping", "--count", "1", "tcp://127.0.0.1:7101"}));
    EXPECT_TRUE(soon(1, host, is_there)) << "it does not end";
    // It ended normally, so it is not restarted.
    EXPECT_TRUE(soon(1, host, {"find", "name=x"}));
    EXPECT_TRUE(soon(0, host, is_there));
    EXPECT_TRUE(soon(1, host, {"ping", "--count", "1", "tcp://127.0.0.1:7101"}));
    EXPECT_TRUE(soon(1, host, is_there));
}

TEST_F(directory_test, kill_ends_a_directory_until_it_is_missed_and_ctrl_c_ends_it_for_good) {
    const std::vector<std::string> on_the_network{"ping", "--count", "1", "tcp://127.0.0.1:7100"};
    for (const int how : {SIGTERM, SIGINT}) {
        const network_host host;
        child_process directory = tool(host, {"directory", "shm://amalgam-directory",
                                              "tcp://127.0.0.1:7100", "--end-after", "5"});
        ASSERT_TRUE(soon(0, host, on_the_network));
        directory.signal(how);
        EXPECT_EQ(directory.join(), 0);
        EXPECT_TRUE(soon(1, host, {"find", "name=x"})) << "who comes starts one";
        EXPECT_TRUE(soon(0, host, is_there));
        EXPECT_TRUE(soon(how == SIGTERM ? 0 : 1, host, on_the_network))
            << "as it was, or a bare one";
        EXPECT_TRUE(soon(1, host, is_there)) << "it does not end";
        child_process last = tool(host, {"directory", "--end-after", "1"});
        EXPECT_EQ(last.join(), 0);  // Nothing was recorded.
    }
}

TEST_F(directory_test, a_directory_is_started_again_with_its_roles) {
    const network_host host;
    const auto said_by = [&](std::vector<std::string> words) {
        child_process asks = run(host, words);
        const std::string said = asks.output();
        (void)asks.join();
        return said;
    };
    const auto found = [&] { return said_by({AMALGAM_TOOL, "find", "name"}); };
    child_process directory =
        tool(host, {"directory", "--readers", "uid:4000000", "--end-after", "5"});
    ASSERT_TRUE(soon(0, host, is_there));
    const std::string refused = "allow this call to uid " + std::to_string(::geteuid());
    EXPECT_NE(found().find(refused), std::string::npos) << found();
    directory.kill();
    EXPECT_NE(found().find(refused), std::string::npos) << "not a bare one: " << found();
    EXPECT_TRUE(soon(1, host, is_there)) << "it does not end";
    // A secret, which is no longer taken, is not ignored.
    const std::string with_secret =
        said_by({"env", "AMALGAM_SECRET_FILE=/run/secret", AMALGAM_TOOL, "find", "name"});
    EXPECT_NE(with_secret.find("no longer take a shared secret"), std::string::npos) << with_secret;
    EXPECT_NE(said_by({AMALGAM_TOOL, "directory", "--members", "uid:me"})
                  .find("expected its number; example: uid:1000"),
              std::string::npos);
}

TEST_F(directory_test, a_directory_is_started_again_with_the_owners_of_attributes) {
    const network_host host;
    const auto found = [&] {  // By a context, which says where it listens.
        child_process asks = tool(host, {"find", "name"});
        const std::string said = asks.output();
        (void)asks.join();
        return said;
    };
    child_process directory =
        tool(host, {"directory", "--owners-of", "name=a", "uid:4000000", "--owners-of",
                    "context.addresses", "uid:4000000", "--end-after", "5"});
    ASSERT_TRUE(soon(0, host, is_there));
    const std::string refused = "only uid:4000000 may give {context.addresses";
    EXPECT_NE(found().find(refused), std::string::npos) << found();
    directory.kill();
    EXPECT_NE(found().find(refused), std::string::npos) << "not a bare one: " << found();
    EXPECT_TRUE(soon(1, host, is_there)) << "it does not end";
}

TEST_F(directory_test, a_killed_process_is_seen_to_go) {
    const network_host host;
    child_process directory = tool(host, {"directory"});
    ASSERT_TRUE(soon(0, host, is_there));
    child_process waits = member(host, {"wait", "x"});
    ASSERT_TRUE(soon(0, host, {"find", "watches=x"}));
    child_process box = member(host, {"box", "x"});
    EXPECT_EQ(answer(host, "x"), "x got hello\n");
    box.kill();
    EXPECT_EQ(waits.output(), "waits\nappeared\ngone\n");
    EXPECT_EQ(waits.join(), 0);
    end(directory);
}

TEST_F(directory_test, a_stopped_process_is_taken_for_gone_and_comes_back_when_it_goes_on) {
    const network_host host;
    child_process directory = tool(host, {"directory", "--silence", "1"});
    ASSERT_TRUE(soon(0, host, is_there));
    child_process box = member(host, {"box", "x"});
    EXPECT_EQ(answer(host, "x"), "x got hello\n");
    box.freeze();
    EXPECT_TRUE(soon(1, host, {"find", "name=x"}));
    box.thaw();
    EXPECT_TRUE(soon(0, host, {"find", "name=x"}));
    EXPECT_EQ(answer(host, "x"), "x got hello\n");
    box.kill();
    end(directory);
}

/// Three hosts on one network, each with a directory and a box, "on1" to "on3".
class directories_of_three_hosts : public directory_test {
protected:
    /// `more(number)`: extra arguments for the directory of that host.
    template <typename More>
    void start(const std::string& bridge, More more) {
        hosts_.resize(4);
        network_host& hub = hosts_[3];
        hub.run("ip link add switch type bridge " + bridge);
        hub.run("ip link set switch up");
        for (std::size_t i = 0; i < 3; ++i) {
            const std::string n = std::to_string(i + 1), address = "10.0.0." + n;
            hosts_[i].plug("net0", address + "/24", hub, "to" + n, "");
            hub.run("ip link set to" + n + " master switch");
            std::vector<std::string> words{"directory", "shm://amalgam-directory",
                                           "tcp://" + address + ":7100?insecure=yes"};
            for (const std::string& each : more(static_cast<int>(i) + 1))
                words.push_back(each);
            directories_.push_back(tool(hosts_[i], words));
            ASSERT_TRUE(soon(0, hosts_[i], is_there));
            boxes_.push_back(
                member(hosts_[i], {"box", "on" + n, "tcp://" + address + ":0?insecure=yes"}));
        }
        for (std::size_t from = 0; from < 3; ++from)
            for (const char* name : {"name=on1", "name=on2", "name=on3"})
                EXPECT_TRUE(soon(0, hosts_[from], {"find", name})) << name;
    }
    void expect_that_they_find_each_other_and_miss_who_is_gone() {
        for (std::size_t from = 0; from < 3; ++from)
            for (const std::string name : {"on1", "on2", "on3"})
                EXPECT_EQ(answer(hosts_[from], name), name + " got hello\n");
        child_process all = tool(hosts_[0], {"find", "name"});
        const std::string said = all.output();
        for (const char* each : {"on1", "on2", "on3"})
            EXPECT_NE(said.find(each), std::string::npos) << said;
        EXPECT_EQ(all.join(), 0);
        boxes_[1].kill();  // Otherwise it would restart its directory.
        directories_[1].kill();
        EXPECT_TRUE(soon(1, hosts_[2], {"find", "name=on2"}));
        EXPECT_EQ(answer(hosts_[0], "on3"), "on3 got hello\n");
        for (const std::size_t each : {0, 2}) {
            boxes_[each].kill();
            end(directories_[each]);
        }
        // Forgets how the killed one was started, too.
        child_process last = tool(hosts_[1], {"directory", "--end-after", "1"});
        EXPECT_EQ(last.join(), 0);
    }

private:
    // Created by start(), since not every machine can.
    std::deque<network_host> hosts_;
    std::vector<child_process> directories_, boxes_;
};

TEST_F(directories_of_three_hosts, join_by_the_address_of_one) {
    start("", [](int number) -> std::vector<std::string> {
        if (number == 1) return {};
        return {"--join", "tcp://10.0.0.1:7100"};
    });
    expect_that_they_find_each_other_and_miss_who_is_gone();
}

TEST_F(directories_of_three_hosts, find_each_other_by_broadcast) {
    start("", [](int) -> std::vector<std::string> {
        return {"--broadcast", "udp://10.0.0.255:7101"};
    });
    expect_that_they_find_each_other_and_miss_who_is_gone();
}

TEST_F(directories_of_three_hosts, find_each_other_by_multicast) {
    start("mcast_snooping 0", [](int number) -> std::vector<std::string> {
        return {"--broadcast", "udp://239.1.2.3:7101?interface=10.0.0." + std::to_string(number)};
    });
    expect_that_they_find_each_other_and_miss_who_is_gone();
}

}  // namespace
}  // namespace amalgam::processes
