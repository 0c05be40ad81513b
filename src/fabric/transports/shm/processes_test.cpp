#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/child_process.hpp"
#include "emulated.hpp"
#include "fabric/limits.hpp"
#include "fabric/transports/shm/memory/layout.hpp"
#include "fabric/transports/shm/test_port.hpp"

namespace amalgam::detail {
namespace {

using conformance::channel;
using conformance::child_process;

constexpr std::size_t memory_bytes = std::size_t{4} << 20;

/// Makes process_vm_readv and process_vm_writev fail with EPERM from now on, as containers do.
void deny_cross_memory() {
    if (is_emulated()) return;  // qemu has neither, nor seccomp.
    sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program{static_cast<unsigned short>(std::size(steps)), steps};
    ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0) << errno;
}

std::string to_hex(const std::array<std::byte, remote_key::wire_bytes>& wire) {
    std::string text;
    for (std::byte one : wire) {
        text += "0123456789abcdef"[static_cast<unsigned>(one) / 16];
        text += "0123456789abcdef"[static_cast<unsigned>(one) % 16];
    }
    return text;
}

remote_key key_from(const std::string& hex) {
    std::array<std::byte, remote_key::wire_bytes> wire;
    for (std::size_t i = 0; i < wire.size(); ++i)
        wire[i] = static_cast<std::byte>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    return remote_key::decode(wire);
}

/// Opens a port and memory filled with 5s, informs its parent, and echoes until the parent speaks.
int serve(channel& parent) {
    shm_test_port here("shm://");
    here.echo = true;
    std::vector<std::byte> memory(memory_bytes, std::byte{5});
    const region target = here.end().open_region(memory, access::read_write).value();
    parent.say(here.end().address());
    parent.say(to_hex(target.key().encode()));
    parent.say(here.end().explain());
    move_until({&here}, [&] { return parent.overhear().has_value(); });
    return 0;
}

/// Expects everything to work with a serving process: messages and transfers.
void expect_all_works(shm_test_port& here, peer_id to, const remote_key& key) {
    const std::vector<std::byte> shorts(30, std::byte{1});
    here.send(to, 1, shorts);
    move_until({&here}, [&] { return !here.tags.empty(); });
    EXPECT_EQ(here.last, shorts);

    std::vector<std::byte> got(memory_bytes);
    const mutable_bytes into(got);
    recorded read;
    if (here.end().post_get(to, scatter(&into, 1), key, 0, read) == posted::pending) {
        move_until({&here}, [&] { return read.runs == 1; });
        EXPECT_TRUE(read.what.ok());
    }
    EXPECT_EQ(std::count(got.begin(), got.end(), std::byte{5}), static_cast<long>(memory_bytes));

    const std::vector<std::byte> fresh(memory_bytes, std::byte{6});
    const const_bytes from(fresh);
    recorded written;
    if (here.end().post_put(to, gather(&from, 1), key, 0, written) == posted::pending) {
        move_until({&here}, [&] { return written.runs == 1; });
        EXPECT_TRUE(written.what.ok());
    }
    recorded again;
    if (here.end().post_get(to, scatter(&into, 1), key, 0, again) == posted::pending)
        move_until({&here}, [&] { return again.runs == 1; });
    EXPECT_EQ(got, fresh);
}

TEST(shm_processes, port_that_the_kernel_denies_cross_memory_attach_works_through_the_ring) {
    child_process denied([](channel& parent) {
        deny_cross_memory();
        shm_test_port here("shm://");
        EXPECT_EQ(here.end().can().rma, rma_mode::emulated);
        const auto infos = transport_registry::native().describe();
        const auto shm = std::find_if(infos.begin(), infos.end(),
                                      [](const auto& one) { return one.name == "shm"; });
        EXPECT_NE(shm->details[0].find("through the ring"), std::string::npos) << shm->details[0];
        EXPECT_NE(here.end().explain().find("denies cross-memory attach"), std::string::npos);
        const peer_id to = here.end().lookup(parent.hear()).value();
        expect_all_works(here, to, key_from(parent.hear()));
        parent.say("done");
        return 0;
    });
    child_process server(&serve);
    denied.line().say(server.line().hear());
    denied.line().say(server.line().hear());
    EXPECT_EQ(denied.line().hear(), "done");
    EXPECT_EQ(denied.join(), 0);
}

TEST(shm_processes, peer_that_the_kernel_denies_cross_memory_attach_is_served_and_serves) {
    child_process server([](channel& parent) {
        deny_cross_memory();
        return serve(parent);
    });
    const std::string address = server.line().hear();
    const remote_key key = key_from(server.line().hear());
    EXPECT_NE(server.line().hear().find("denies cross-memory attach"), std::string::npos);
    shm_test_port here("shm://");
    expect_all_works(here, here.end().lookup(address).value(), key);
}

TEST(shm_processes, refusal_that_comes_after_the_connection_falls_back_to_frames) {
    if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    child_process caller([](channel& parent) {
        shm_test_port here("shm://");
        EXPECT_EQ(here.end().can().rma, rma_mode::cross_memory);
        const peer_id to = here.end().lookup(parent.hear()).value();
        const remote_key key = key_from(parent.hear());
        here.send(to, 1, {});
        move_until({&here}, [&] { return !here.tags.empty(); });
        here.tags.clear();
        deny_cross_memory();
        expect_all_works(here, to, key);
        EXPECT_NE(here.end().explain().find("denied"), std::string::npos) << here.end().explain();
        return 0;
    });
    child_process server(&serve);
    caller.line().say(server.line().hear());
    caller.line().say(server.line().hear());
    EXPECT_EQ(caller.join(), 0);
}

/// Takes messages whose bytes all equal their tag.
struct checking_sink final : message_sink {
    void on_message(message& arrived) noexcept override {
        const const_bytes bytes = arrived.bytes();
        const auto right = static_cast<std::byte>(arrived.tag());
        ++came;
        whole = whole && std::count(bytes.begin(), bytes.end(), right) ==
                             static_cast<std::ptrdiff_t>(bytes.size());
        in_order = in_order && arrived.tag() == came;
    }
    std::uint64_t came = 0;
    bool whole = true;
    bool in_order = true;
};

/// Large messages, of which each fills the ring, from one process that sleeps whenever it may to
/// another that does.
TEST(shm_processes, large_messages_wake_their_sender_and_their_receiver) {
    constexpr std::uint64_t count = 12;
    child_process receiver([&](channel& parent) {
        shm_test_port here("shm://");
        checking_sink sink;
        here.end().set_sink(&sink);
        parent.say(here.end().address());
        sleep_until(here, [&] { return sink.came == 1; });
        parent.say("connected");
        sleep_until(here, [&] { return sink.came == 1 + count; });
        EXPECT_TRUE(sink.whole);
        EXPECT_TRUE(sink.in_order);
        parent.say("took all");
        parent.hear();
        return 0;
    });
    std::vector<std::vector<std::byte>> memory(2 + count);
    std::vector<std::array<const_bytes, 3>> parts(2 + count);
    std::deque<recorded> sends(2 + count);
    shm_test_port here("shm://");
    const peer_id to = here.end().lookup(receiver.line().hear()).value();
    here.send(to, 1, {});
    std::optional<std::string> word;
    auto heard = [&] {
        word = receiver.line().overhear();
        return word.has_value();
    };
    move_until({&here}, heard);
    for (std::uint64_t i = 2; i < 2 + count; ++i) {
        memory[i].assign(300'000 + i * 1001, static_cast<std::byte>(i));
        const const_bytes all(memory[i]);
        parts[i] = {all.first(1000), all.subspan(1000, 100'000), all.subspan(101'000)};
        sends[i].runs = here.end().post_send(to, i, parts[i], sends[i]) == posted::done ? 1 : 0;
    }
    sleep_until(here, [&] {
        return std::all_of(sends.begin() + 2, sends.end(),
                           [](const recorded& one) { return one.runs == 1; });
    });
    for (std::uint64_t i = 2; i < 2 + count; ++i)
        EXPECT_TRUE(sends[i].what.ok());
    move_until({&here}, heard);
    EXPECT_EQ(*word, "took all");
    EXPECT_TRUE(here.losses.empty());
    receiver.line().say("end");
    EXPECT_EQ(receiver.join(), 0);
}

std::set<std::string> files_in_shared_memory() {
    std::set<std::string> names;
    std::error_code error;
    for (const auto& one : std::filesystem::directory_iterator("/dev/shm", error))
        if (!one.is_directory(error)) names.insert(one.path().filename());
    return names;
}

bool is_socket_name(const std::string& part) {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);)
        if (line.find(part) != std::string::npos) return true;
    return false;
}

void limit_file_sizes(rlim_t bytes) {
    const rlimit little{bytes, bytes};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
}

TEST(shm_processes, port_past_the_limit_of_file_sizes_is_refused_with_a_sentence) {
    child_process limited([](channel&) {
        limit_file_sizes(1000);
        const auto refused = transport_registry::native().open("shm://");
        EXPECT_EQ(refused.code(), errc::no_memory);
        EXPECT_NE(refused.sentence().find("ulimit -f"), std::string::npos) << refused.sentence();
        return 0;
    });
    EXPECT_EQ(limited.join(), 0);
}

TEST(shm_processes, connection_past_the_limit_of_file_sizes_is_refused_with_a_sentence) {
    child_process limited([](channel&) {
        shm_test_port one("shm://"), other("shm://");
        limit_file_sizes(shm_pair_layout::bytes - 1);
        const auto refused = one.end().lookup(other.end().address());
        EXPECT_EQ(refused.code(), errc::no_memory);
        EXPECT_NE(refused.sentence().find("ulimit -f"), std::string::npos) << refused.sentence();
        EXPECT_EQ(one.end().open_operations(), 0u);
        return 0;
    });
    EXPECT_EQ(limited.join(), 0);
}

/// Sends a message and a transfer to a block from one port to another.
void expect_messages_and_blocks(bool shared) {
    shm_test_port one("shm://"), other("shm://");
    const peer_id to = one.reach(other);
    const std::vector<std::byte> bytes(100'000, std::byte{3});
    one.send(to, 7, bytes);
    move_until({&one, &other}, [&] { return !other.tags.empty(); });
    EXPECT_EQ(other.last, bytes);
    shared_block block = other.end().allocate(100'000).value();
    EXPECT_EQ(block.is_shared(), shared);
    const region target = other.end().open_region(block.bytes(), access::read_write).value();
    const const_bytes from(bytes);
    recorded done;
    if (one.end().post_put(to, gather(&from, 1), target.key(), 0, done) == posted::pending) {
        move_until({&one, &other}, [&] { return done.runs == 1; });
        EXPECT_TRUE(done.what.ok());
    }
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), block.bytes().begin()));
}

TEST(shm_processes, blocks_past_the_limit_of_file_sizes_are_private) {
    child_process limited([](channel&) {
        limit_file_sizes(std::max(shm_registrations_layout::bytes, shm_pair_layout::bytes));
        expect_messages_and_blocks(false);
        return 0;
    });
    EXPECT_EQ(limited.join(), 0);
}

TEST(shm_processes, full_file_system_of_shared_memory_holds_nothing_up) {
    child_process crowded([](channel& parent) {
        const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
        const auto write = [](const char* path, const std::string& text) {
            std::ofstream(path) << text;
        };
        const bool apart = ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
        write("/proc/self/setgroups", "deny");
        write("/proc/self/uid_map", user + " " + user + " 1");
        write("/proc/self/gid_map", group + " " + group + " 1");
        if (!apart || ::mount("none", "/dev/shm", "tmpfs", 0, "size=4k") != 0) {
            parent.say("not permitted");
            return 0;
        }
        const unique_fd file(::open("/dev/shm/all", O_CREAT | O_RDWR | O_CLOEXEC, 0600));
        const std::vector<char> page(shm_page_bytes);
        EXPECT_EQ(::write(file.get(), page.data(), page.size()), 4096);
        EXPECT_LT(::write(file.get(), page.data(), page.size()), 0);
        parent.say("full");
        expect_messages_and_blocks(true);
        return 0;
    });
    const bool full = crowded.line().hear() == "full";
    EXPECT_EQ(crowded.join(), 0);
    if (!full) GTEST_SKIP() << "no name space of mounts is to be had";
}

TEST(shm_processes, killed_process_leaves_nothing_behind) {
    const std::set<std::string> before = files_in_shared_memory();
    child_process server(&serve);
    const std::string address = server.line().hear();
    const std::string name = address.substr(std::string("shm://").size());
    ASSERT_TRUE(is_socket_name(name)) << "it was looked for in the right place";
    {
        shm_test_port here("shm://");
        const std::vector<std::byte> large(std::size_t{1} << 20);
        here.send(here.end().lookup(address).value(), 1, large);
        here.progress();
        server.kill();
        move_until({&here}, [&] { return !here.losses.empty(); });
        EXPECT_FALSE(is_socket_name(name));
    }
    for (const std::string& one : files_in_shared_memory())
        EXPECT_EQ(one.find("amalgam"), std::string::npos) << one;
    std::set<std::string> after = files_in_shared_memory();
    for (const std::string& one : before)
        after.erase(one);
    for (const std::string& one : after)
        EXPECT_EQ(one.find(name), std::string::npos) << one;
}

TEST(shm_processes, process_killed_while_its_child_holds_its_descriptors_is_gone_all_the_same) {
    child_process server([](channel& parent) {
        shm_test_port here("shm://");
        here.echo = true;
        bool forked = false;
        parent.say(here.end().address());
        move_until({&here}, [&] {
            if (!here.tags.empty() && !forked) {
                forked = true;
                if (::fork() == 0) {
                    // Keeps its parent's sockets open until the test's process has ended.
                    ::prctl(PR_SET_PDEATHSIG, 0);
                    parent.hear();
                    ::_exit(0);
                }
                parent.say("forked");
            }
            return false;
        });
        return 0;
    });
    shm_test_port here("shm://");
    here.send(here.end().lookup(server.line().hear()).value(), 1, {});
    move_until({&here}, [&] { return !here.tags.empty(); });
    EXPECT_EQ(server.line().hear(), "forked");
    server.kill();
    move_until({&here}, [&] { return !here.losses.empty(); });
    EXPECT_EQ(here.losses[0], errc::disconnected);
    server.line().say("end");
}

}  // namespace
}  // namespace amalgam::detail
