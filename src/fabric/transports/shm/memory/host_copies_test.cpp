// Transfers between processes of one host by the kernel, as carriers of any library have them: who
// is killed, stopped or let go of at a bad moment.
#include "fabric/transports/shm/memory/host_copies.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

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

    /// Marks what `from` is about to touch, and does not come to an end.
    static void begin_to_touch(host_copies& from, const remote_key& region, const host_copies& of,
                               bool writes) {
        from.table_.touch(shm_touched::region(region.region, writes), of.token_);
    }
    static void end_touch(host_copies& from) { from.table_.let_go(); }
    static std::size_t sleepers_of(const host_copies& at) { return at.sleepers_.size(); }
    void* meet(host_copies& here, host_copies& target, packet_link& link) {
        return here
            .open_key(link, {}, 0, 0,
                      bytes_of(told_by(target, link, text_of(here.one_sided_name()))))
            .value();
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

TEST_F(host_copies_test, peer_that_is_one_too_many_is_refused_until_another_leaves) {
    auto target = make(), here = make();
    const std::string name = text_of(here->one_sided_name());
    std::vector<scripted_carrier::link> links(shm_registrations_layout::admitted_count + 1);
    for (std::size_t i = 0; i + 1 < links.size(); ++i)
        ASSERT_FALSE(told_by(*target, links[i], name).empty()) << i;
    EXPECT_TRUE(told_by(*target, links.back(), name).empty());
    EXPECT_FALSE(told_by(*target, links[7], name).empty()) << "it has its number";
    target->left(links.back());  // Had none.
    EXPECT_TRUE(told_by(*target, links.back(), name).empty());
    target->left(links[7]);
    EXPECT_FALSE(told_by(*target, links.back(), name).empty());
}

// Nobody waits long for who reads, so who reads must not believe what it read.
TEST_F(host_copies_test, get_beside_which_its_region_or_link_ended_is_not_ok) {
    std::vector<std::byte> far(std::size_t{4} << 20), near(far.size());
    for (int round = 0; round < 20; ++round) {
        auto target = make(limit(0)), here = make();
        std::fill(far.begin(), far.end(), std::byte{1});
        const remote_key region = publish(*target, far);
        void* key = meet(*here, *target, link_);
        std::atomic<int> gets{0};
        bool right = true;
        status last;
        std::thread reader([&] {
            while ((last = transfer(*here, key, false, near, region)).ok()) {
                right = right && near == std::vector<std::byte>(near.size(), std::byte{1});
                ++gets;
            }
        });
        while (gets.load() < 2) {
        }
        if (round % 2 == 0)
            target->hide(region);
        else
            target->left(link_);
        // As its owner may; the end, which a get that is under way reads last. By the kernel, which
        // no sanitizer takes for a race.
        const std::vector<std::byte> other(10'000, std::byte{2});
        const const_bytes from(other), into = const_bytes(far).last(other.size());
        cross_place<const_bytes> source{{&from, 1}, {}}, place{{&into, 1}, {}};
        EXPECT_TRUE(copy_to_process(::getpid(), source, place, other.size()).ok());
        reader.join();
        EXPECT_TRUE(right) << "bytes of a later owner were given as the region's";
        EXPECT_NE(last.code, errc::ok);
        here->close_key(key);
    }
}

TEST_F(host_copies_test, who_runs_and_takes_longer_than_the_limit_is_not_waited_for) {
    auto target = make(limit(1)), here = make();
    const remote_key region = publish(*target, memory_);
    void* key = meet(*here, *target, link_);
    begin_to_touch(*here, region, *target, true);
    target->hide(region);
    end_touch(*here);
    here->close_key(key);
}

TEST_F(host_copies_test, peers_that_left_in_the_midst_of_writes_are_kept_in_a_bounded_number) {
    auto target = make(limit(1)), here = make();
    const remote_key region = publish(*target, memory_);
    const std::string name = text_of(here->one_sided_name());
    begin_to_touch(*here, region, *target, true);
    std::vector<scripted_carrier::link> links(40);
    std::size_t most = 0;
    for (auto& each : links) {
        ASSERT_FALSE(told_by(*target, each, name).empty());
        target->left(each);
        most = std::max(most, sleepers_of(*target));
    }
    EXPECT_GT(most, 0u);
    EXPECT_LE(most, 16u);
    end_touch(*here);
    ASSERT_FALSE(told_by(*target, link_, name).empty());
    target->left(link_);
    EXPECT_EQ(sleepers_of(*target), 0u) << "none writes any more";
}

TEST_F(host_copies_test, explanation_counts_the_peers_whose_transfers_go_in_packets) {
    auto here = make();
    const std::string before = here->explain();
    EXPECT_EQ(before.find("packets"), before.npos) << before;
    (void)here->open_key(link_, {}, 0, 0, {});
    (void)told_by(*here, link_, "");
    const std::string after = here->explain();
    EXPECT_NE(after.find("but to 2 of the peers so far they go in packets"), after.npos) << after;
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

TEST_F(standing_process, region_of_another_port_does_not_wait_whatever_its_number) {
    auto child = visitor([](host_copies& here, void* key, conformance::channel& parent) {
        const std::string wire = parent.hear();
        const remote_key region =
            remote_key::decode(std::span<const std::byte, remote_key::wire_bytes>(bytes_of(wire)));
        stand_still(here, region, key, true);
    });
    auto target = make(limit(1)), other = make(limit(1));
    const std::string name = child.line().hear();
    const std::string told = told_by(*target, link_, name);
    EXPECT_FALSE(told.empty());
    EXPECT_FALSE(told_by(*other, link_, name).empty());
    child.line().say(told);
    const remote_key region = publish(*target, memory_);
    --regions_;
    const remote_key same_number = publish(*other, memory_);
    EXPECT_EQ(region.region, same_number.region);
    child.line().say(text_of(region.encode()));
    child.wait_until_still();
    other->hide(same_number);  // Would wait for ever.
    child.thaw();
    EXPECT_EQ(child.join(), 0);
}

TEST_F(standing_process, region_waits_for_one_that_was_stopped_while_it_read_up_to_the_limit) {
    close_while_it_stands(false, false, [](conformance::child_process&) {});
}

}  // namespace
}  // namespace amalgam::detail
