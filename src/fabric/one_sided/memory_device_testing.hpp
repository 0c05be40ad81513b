#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/fabric/one_sided.hpp>

namespace amalgam::detail {

/// Lives while memory is allocated for the test, so that a test that lets allocations fail can
/// spare these.
struct for_the_test {
    for_the_test() noexcept {
        if (begins != nullptr) begins();
    }
    ~for_the_test() {
        if (ends != nullptr) ends();
    }
    for_the_test(const for_the_test&) = delete;
    static inline void (*begins)() noexcept = nullptr;
    static inline void (*ends)() noexcept = nullptr;
};

/// The network between memory devices of this process: memory that was exposed, by number.
///
/// Threads: any. A copy holds the lock, so that what was hidden is not touched any more.
class memory_network {
public:
    struct exposed {
        std::uint64_t secret = 0;
        mutable_bytes bytes;
        access rights = access::read;
    };

    static memory_network& instance() {
        static memory_network one;
        return one;
    }
    std::uint64_t add(const exposed& what) {
        const std::lock_guard guard(lock_);
        all_.emplace(++last_, what);
        return last_;
    }
    void remove(std::uint64_t number) {
        const std::lock_guard guard(lock_);
        all_.erase(number);
    }
    /// Copies if the key opens it now.
    bool copy(std::uint64_t number, std::uint64_t secret, const one_sided_transfer& what) {
        const std::lock_guard guard(lock_);
        const auto at = all_.find(number);
        if (at == all_.end() || at->second.secret != secret ||
            !allows(at->second.rights, what.is_put ? access::write : access::read) ||
            what.offset > at->second.bytes.size() ||
            what.bytes > at->second.bytes.size() - what.offset)
            return false;
        std::byte* there = at->second.bytes.data() + what.offset;
        std::memcpy(what.is_put ? there : what.here, what.is_put ? what.here : there, what.bytes);
        return true;
    }

private:
    std::mutex lock_;
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, exposed> all_;
};

/// For tests: a network device in memory. It copies some calls of run() after it was asked, checks
/// the key at that moment, has a bounded queue, and can be stalled.
class memory_device final : public one_sided_carrier {
public:
    static one_sided_facts small() {
        one_sided_facts facts;
        facts.piece_bytes = 4096;
        facts.window = 4;
        return facts;
    }

    /// What the test decides, and what it sees.
    struct settings {
        one_sided_facts facts = small();
        unsigned delay = 2;            ///< Calls of run() until a transfer is over.
        std::size_t room = 16;         ///< Transfers in its queue.
        bool stalled = false;          ///< Neither copies nor lets go.
        bool lets_go_at_once = false;  ///< Inside let_go(), also if stalled.
        bool ended = false;            ///< By end_one_sided().
        bool registers = true;         ///< Else register_memory() fails.
        std::size_t most_registrations = ~std::size_t{0};  ///< And when there were so many.
        bool exposes = true;                               ///< Else expose() fails.
        std::size_t most_started = ~std::size_t{0};        ///< Then start() says `unsupported`.
        std::uint64_t through_own_memory = 0;              ///< Told as copied_bytes().
        std::size_t started = 0, copied_bytes = 0;
        std::size_t asked_back = 0;  ///< By let_go().
        std::size_t exposures = 0, opened = 0, closed = 0;
        std::size_t registered = 0, registrations = 0;  ///< Now, and ever.
    };

    explicit memory_device(settings& with) : with_(with) {}
    ~memory_device() {
        for (const auto& [region, numbers] : exposed_)
            for (const auto& [index, key] : numbers)
                memory_network::instance().remove(key.number);
        EXPECT_TRUE(with_.ended || events_ == nullptr);
        EXPECT_EQ(with_.registered, 0u);
        EXPECT_EQ(with_.opened, with_.closed);
    }

    void start_one_sided(one_sided_events& to) noexcept override { events_ = &to; }
    one_sided_facts one_sided_traits() const noexcept override { return with_.facts; }

    result<std::size_t> expose(packet_link&, const_bytes, const remote_key& key, scatter segments,
                               std::size_t index,
                               std::span<std::byte, max_key_bytes> told) noexcept override {
        const for_the_test spares;
        ++with_.exposures;
        if (!with_.exposes) return {errc::no_memory, "a test asked for it"};
        auto& mine = exposed_[key.region];
        if (mine.count(index) == 0) {
            const std::uint64_t secret = key.secret * 31 + index;
            mine[index] = {memory_network::instance().add({secret, segments[index], key.rights}),
                           secret};
        }
        std::memcpy(told.data(), &mine[index], sizeof(device_key));
        return sizeof(device_key);
    }
    void hide(const remote_key& key) noexcept override {
        const for_the_test spares;
        for (const auto& [index, one] : exposed_[key.region])
            memory_network::instance().remove(one.number);
        exposed_.erase(key.region);
    }

    result<void*> open_key(packet_link&, const remote_key&, std::size_t, std::uint64_t,
                           const_bytes told) noexcept override {
        const for_the_test spares;
        if (told.size() != sizeof(device_key)) return {errc::invalid, "not a key"};
        auto made = std::make_unique<device_key>();
        std::memcpy(made.get(), told.data(), sizeof(device_key));
        ++with_.opened;
        return static_cast<void*>(made.release());
    }
    void close_key(void* one) noexcept override {
        for (const one_sided_transfer* each : queue_)
            EXPECT_NE(each->key, one) << "a key in use was closed";
        delete static_cast<device_key*>(one);
        ++with_.closed;
    }

    result<void*> register_memory(mutable_bytes bytes) noexcept override {
        if (!with_.registers || with_.registrations >= with_.most_registrations)
            return {errc::no_memory, "a test asked for it"};
        const for_the_test spares;
        ++with_.registered;
        ++with_.registrations;
        return static_cast<void*>(new mutable_bytes(bytes));
    }
    void unregister_memory(void* one) noexcept override {
        for (const one_sided_transfer* each : queue_)
            EXPECT_NE(each->memory, one) << "memory in use was unregistered";
        delete static_cast<mutable_bytes*>(one);
        --with_.registered;
    }

    posted start(packet_link&, one_sided_transfer& what) noexcept override {
        const for_the_test spares;
        EXPECT_FALSE(with_.ended);
        if (queue_.size() >= with_.room) return posted::full;
        if (with_.facts.registers_memory) {
            const auto& known = *static_cast<mutable_bytes*>(what.memory);
            EXPECT_GE(what.here, known.data());
            EXPECT_LE(what.here + what.bytes, known.data() + known.size());
        }
        EXPECT_GT(what.bytes, 0u);
        EXPECT_LE(what.bytes, with_.facts.piece_bytes);
        if (with_.started >= with_.most_started) {
            what.how = {errc::unsupported};
            return posted::done;
        }
        ++with_.started;
        what.carrier_words[0] = with_.delay;
        what.carrier_words[1] = 0;
        queue_.push_back(&what);
        return posted::pending;
    }
    void let_go(one_sided_transfer& what) noexcept override {
        ++with_.asked_back;
        what.carrier_words[1] = 1;
        if (with_.lets_go_at_once && std::erase(queue_, &what) > 0)
            events_->finished(what, {errc::canceled});
    }
    std::uint64_t copied_bytes() const noexcept override { return with_.through_own_memory; }
    void end_one_sided() noexcept override {
        EXPECT_FALSE(std::exchange(with_.ended, true));
        queue_.clear();
    }

    /// Returns how many transfers ended.
    std::size_t run() {
        if (with_.stalled) return 0;
        auto over = std::exchange(over_, {});  // Keeps its memory.
        take_over(over);
        for (auto& [one, how] : over)
            events_->finished(*one, how);
        const std::size_t count = over.size();
        over.clear();
        over_ = std::move(over);
        return count;
    }
    bool is_idle() const noexcept { return queue_.empty() || with_.stalled; }

private:
    struct device_key {
        std::uint64_t number = 0;
        std::uint64_t secret = 0;
    };

    void take_over(std::vector<std::pair<one_sided_transfer*, status>>& over) {
        const for_the_test spares;
        std::erase_if(queue_, [&](one_sided_transfer* one) {
            if (one->carrier_words[0] > 0 && one->carrier_words[0]-- > 1) return false;
            over.emplace_back(one,
                              one->carrier_words[1] != 0 ? status{errc::canceled} : copy(*one));
            return true;
        });
    }
    status copy(const one_sided_transfer& one) {
        const auto& key = *static_cast<device_key*>(one.key);
        if (!memory_network::instance().copy(key.number, key.secret, one)) return {errc::denied};
        with_.copied_bytes += one.bytes;
        return {};
    }

    settings& with_;
    one_sided_events* events_ = nullptr;
    std::map<std::uint64_t, std::map<std::size_t, device_key>> exposed_;
    std::vector<one_sided_transfer*> queue_;
    std::vector<std::pair<one_sided_transfer*, status>> over_;
};

}  // namespace amalgam::detail
