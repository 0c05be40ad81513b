// Transfers between processes of one host by the kernel, as carriers of any library have them: who
// is killed, stopped or let go of at a bad moment.
#include "fabric/transports/shm/memory/host_copies.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "conformance/child_process.hpp"
#include "emulated.hpp"
#include "fabric/packets/scripted_carrier.hpp"

namespace amalgam::detail {

class host_copies_test : public testing::Test {
protected:
    using limit = std::chrono::milliseconds;

    void SetUp() override {
        if (is_emulated()) GTEST_SKIP() << qemu_cannot_copy_between_processes;
    }
    static std::unique_ptr<host_copies> make(limit silence = limit(5000)) {
        return host_copies::make(silence).value();
    }
    static std::string text_of(const_bytes bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    static const_bytes bytes_of(const std::string& text) {
        return std::as_bytes(std::span<const char>(text));
    }
    /// What the target tells who asks by that name.
    static std::string told_by(host_copies& target, packet_link& link, const std::string& asker) {
        std::array<std::byte, one_sided_carrier::max_key_bytes> told;
        auto bytes = target.expose(link, bytes_of(asker), {}, {}, 0, told);
        return bytes ? text_of(const_bytes(told).first(bytes.value())) : std::string();
    }
    static status transfer(host_copies& from, void* key, bool is_put, mutable_bytes here,
                           const remote_key& region, std::uint64_t offset = 0) {
        one_sided_transfer what;
        what.is_put = is_put;
        what.here = here.data();
        what.bytes = here.size();
        what.key = key;
        what.offset = offset;
        what.region = &region;
        scripted_carrier::link link;
        EXPECT_EQ(from.start(link, what), posted::done);
        return what.how;
    }
    /// What a process stopped in the middle of a copy leaves.
    static void stand_still(host_copies& from, const remote_key& region, void* key, bool writes) {
        from.table_.touch(shm_touched::region(region.region, writes),
                          static_cast<host_peer*>(key)->name.token);
        std::raise(SIGSTOP);
        from.table_.let_go();
    }

    static constexpr std::size_t size = 100000;

    remote_key publish(host_copies& at, mutable_bytes memory, access rights = access::read_write) {
        remote_key key;
        key.secret = random_u64();
        key.region = ++regions_;
        key.incarnation = 77;
        key.bytes = memory.size();
        key.rights = rights;
        at.show(key, {&memory, 1});
        return key;
    }

    /// A process that meets `target`, then does what `body` says with the key of its table.
    conformance::child_process visitor(
        const std::function<void(host_copies&, void* key, conformance::channel&)>& body) {
        return conformance::child_process([=](conformance::channel& parent) {
            auto here = make();
            parent.say(text_of(here->one_sided_name()));
            const std::string told = parent.hear();
            scripted_carrier::link link;
            auto key = here->open_key(link, {}, 0, 0, bytes_of(told));
            EXPECT_TRUE(key);
            if (key) {
                body(*here, key.value(), parent);
                here->close_key(key.value());
            }
            return 0;
        });
    }
    /// The target's part of that.
    void welcome(host_copies& target, conformance::child_process& who) {
        const std::string told = told_by(target, link_, who.line().hear());
        EXPECT_FALSE(told.empty());
        who.line().say(told);
    }

    std::uint64_t regions_ = 0;
    scripted_carrier::link link_;
    std::vector<std::byte> memory_ = std::vector<std::byte>(size);
};

namespace {

void write_on(host_copies& here, const std::function<status(host_copies&)>& once) {
    while (once(here).ok()) {
    }
}

TEST_F(host_copies_test, two_ports_of_one_process_reach_each_others_regions) {
    auto target = make(), here = make();
    const remote_key region = publish(*target, memory_);
    void* key = here->open_key(link_, {}, 0, 0,
                               bytes_of(told_by(*target, link_, text_of(here->one_sided_name()))))
                    .value();
    std::vector<std::byte> one(1000, std::byte{7}), other(1000);
    EXPECT_TRUE(transfer(*here, key, true, one, region, 500).ok());
    EXPECT_TRUE(transfer(*here, key, false, other, region, 500).ok());
    EXPECT_EQ(one, other);
    EXPECT_EQ(memory_[499], std::byte{0});
    EXPECT_EQ(memory_[500], std::byte{7});

    // Only keys as they were issued; the owner is asked about others.
    for (int part = 0; part < 5; ++part) {
        remote_key forged = region;
        (part == 0   ? forged.secret
         : part == 1 ? forged.region
         : part == 2 ? forged.incarnation
                     : forged.bytes) += 1;
        if (part == 4) forged = publish(*target, memory_, access::read);
        EXPECT_EQ(transfer(*here, key, true, one, forged), errc::unsupported) << part;
    }
    EXPECT_EQ(transfer(*here, key, true, one, region, size - 999), errc::unsupported);
    target->hide(region);
    EXPECT_EQ(transfer(*here, key, true, one, region), errc::unsupported);
    here->close_key(key);
}

TEST_F(host_copies_test, peer_whose_link_is_gone_copies_nothing_more) {
    auto target = make(), here = make();
    const remote_key region = publish(*target, memory_);
    void* key = here->open_key(link_, {}, 0, 0,
                               bytes_of(told_by(*target, link_, text_of(here->one_sided_name()))))
                    .value();
    target->left(link_);
    EXPECT_EQ(transfer(*here, key, true, memory_, region), errc::disconnected);
    EXPECT_EQ(transfer(*here, key, false, memory_, region), errc::disconnected);
    here->close_key(key);
}

TEST_F(host_copies_test, visitors_come_and_go_beside_each_other) {
    auto target = make();
    const remote_key region = publish(*target, memory_);
    std::vector<std::byte> some(1000, std::byte{7});
    struct visitor_here {
        std::unique_ptr<host_copies> copies = make();
        scripted_carrier::link link;
        void* key = nullptr;
    };
    const auto comes = [&](visitor_here& one) {
        const std::string told = told_by(*target, one.link, text_of(one.copies->one_sided_name()));
        one.key = one.copies->open_key(one.link, {}, 0, 0, bytes_of(told)).value();
    };
    const auto copies = [&](visitor_here& one) {
        return transfer(*one.copies, one.key, true, some, region).ok();
    };
    visitor_here first, second, third;
    comes(first);
    comes(second);
    EXPECT_TRUE(copies(first));
    EXPECT_TRUE(copies(second));
    target->left(first.link);
    EXPECT_FALSE(copies(first));
    EXPECT_TRUE(copies(second));
    comes(third);
    EXPECT_TRUE(copies(second));
    EXPECT_TRUE(copies(third));
    EXPECT_FALSE(copies(first)) << "another has its number now";
    for (visitor_here* one : {&first, &second, &third})
        one->copies->close_key(one->key);
}

TEST_F(host_copies_test, names_of_others_and_garbage_are_refused) {
    auto here = make();
    const std::string name = text_of(here->one_sided_name());
    EXPECT_FALSE(here->open_key(link_, {}, 0, 0, {}));
    EXPECT_FALSE(here->open_key(link_, {}, 0, 0, bytes_of(name).first(10)));
    seeded_random dice(1);
    for (std::size_t at = 0; at + 8 < host_name::wire_bytes; at += 8) {  // All but the number.
        std::string wrong = name;
        wrong[at] = static_cast<char>(wrong[at] + 1 + static_cast<int>(dice.below(100)));
        EXPECT_FALSE(here->open_key(link_, {}, 0, 0, bytes_of(wrong))) << at;
        const bool is_probe = at == 4 * 8;  // Which only those who copy look at.
        EXPECT_EQ(told_by(*here, link_, wrong).empty(), !is_probe) << at;
        if (is_probe) here->left(link_);
    }
    std::string beyond = name;
    beyond[host_name::wire_bytes - 6] = 1;
    EXPECT_FALSE(here->open_key(link_, {}, 0, 0, bytes_of(beyond)));
}

TEST_F(host_copies_test, region_that_closed_is_not_written_by_a_process_that_writes_all_the_time) {
    auto child = visitor([](host_copies& here, void* key, conformance::channel& parent) {
        const std::string wire = parent.hear();
        const remote_key region =
            remote_key::decode(std::span<const std::byte, remote_key::wire_bytes>(bytes_of(wire)));
        std::vector<std::byte> mine(size, std::byte{1});
        parent.say("begins");
        write_on(here, [&](host_copies& from) { return transfer(from, key, true, mine, region); });
        parent.say("over");
    });
    auto target = make();
    welcome(*target, child);
    const remote_key region = publish(*target, memory_);
    child.line().say(text_of(region.encode()));
    child.line().hear();
    while (reinterpret_cast<std::atomic<std::byte>&>(memory_.back()).load() == std::byte{0}) {
    }
    target->hide(region);
    std::memset(memory_.data(), 2, size);
    EXPECT_EQ(child.line().hear(), "over");
    EXPECT_EQ(memory_, std::vector<std::byte>(size, std::byte{2}));
    EXPECT_EQ(child.join(), 0);
}

TEST_F(host_copies_test, process_killed_while_it_writes_holds_up_no_region) {
    for (int round = 0; round < 20; ++round) {
        auto child = visitor([](host_copies& here, void* key, conformance::channel& parent) {
            const std::string wire = parent.hear();
            const remote_key region = remote_key::decode(
                std::span<const std::byte, remote_key::wire_bytes>(bytes_of(wire)));
            std::vector<std::byte> mine(size, std::byte{1});
            write_on(here, [&](host_copies& at) { return transfer(at, key, true, mine, region); });
        });
        auto target = make();
        memory_.assign(size, std::byte{0});
        welcome(*target, child);
        const remote_key region = publish(*target, memory_);
        child.line().say(text_of(region.encode()));
        while (reinterpret_cast<std::atomic<std::byte>&>(memory_.back()).load() == std::byte{0}) {
        }
        child.kill();
        target->hide(region);
        target->left(link_);
    }
}

/// A region closes while a process stands still in a copy; `then` ends the wait.
class standing_process : public host_copies_test {
protected:
    void close_while_it_stands(bool writes, bool left_before,
                               const std::function<void(conformance::child_process&)>& then) {
        auto child = visitor([writes](host_copies& here, void* key, conformance::channel& parent) {
            const std::string wire = parent.hear();
            const remote_key region = remote_key::decode(
                std::span<const std::byte, remote_key::wire_bytes>(bytes_of(wire)));
            stand_still(here, region, key, writes);
        });
        auto target = make(limit(1));
        welcome(*target, child);
        const remote_key other = publish(*target, memory_);
        const remote_key region = publish(*target, memory_);
        child.line().say(text_of(region.encode()));
        child.wait_until_still();
        if (left_before) target->left(link_);
        target->hide(other);  // Not held up.
        std::atomic<bool> closed{false};
        std::thread closing([&] {
            target->hide(region);
            closed = true;
        });
        if (writes) {
            for (int i = 0; i < 200; ++i)  // Longer than the limit, on most machines.
                std::this_thread::yield();
            EXPECT_FALSE(closed.load());
        }
        then(child);
        closing.join();
    }
};

TEST_F(standing_process, region_waits_for_one_that_was_stopped_while_it_wrote_until_it_goes_on) {
    for (const bool left_before : {false, true})
        close_while_it_stands(true, left_before, [](conformance::child_process& child) {
            child.thaw();
            EXPECT_EQ(child.join(), 0);
        });
}

TEST_F(standing_process, region_waits_for_one_that_was_stopped_while_it_wrote_until_it_is_killed) {
    for (const bool left_before : {false, true})
        close_while_it_stands(true, left_before,
                              [](conformance::child_process& child) { child.kill(); });
}

TEST_F(standing_process, region_waits_for_one_that_was_stopped_while_it_read_up_to_the_limit) {
    close_while_it_stands(false, false, [](conformance::child_process&) {});
}

}  // namespace
}  // namespace amalgam::detail
