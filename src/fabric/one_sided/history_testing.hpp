#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "conformance/pattern.hpp"
#include "fabric/port/port_testing.hpp"
#include "fabric/transports/tcp/test_port.hpp"
#include "seeded_runs.hpp"

// Random programs against a model, over transfers of a library's or the kernel's: each put, get,
// notified put and atomic operation works on bytes of its own, regions close and others take their
// place, transfers are canceled, and connections end. After a transfer has ended none of its bytes
// moves.
namespace amalgam::detail::histories {

using bytes_of = std::vector<std::byte>;
using conformance::are_same;

class history;

/// A target's region, cut in slots; one operation at a time works on a slot.
struct exposed {
    static constexpr std::size_t slots = 8;

    explicit exposed(std::size_t slot_bytes, std::size_t parts)
        : slot(slot_bytes), memory(slots * slot_bytes), model(slots * slot_bytes) {
        const std::size_t part = memory.size() / parts;
        for (std::size_t i = 0; i < parts; ++i)
            segments.push_back(mutable_bytes(memory).subspan(
                i * part, i + 1 == parts ? memory.size() - i * part : part));
    }
    mutable_bytes of(std::size_t which) {
        return mutable_bytes(memory).subspan(which * slot, slot);
    }
    mutable_bytes model_of(std::size_t which) {
        return mutable_bytes(model).subspan(which * slot, slot);
    }

    std::size_t slot;
    bytes_of memory, model;
    std::vector<mutable_bytes> segments;
    region opened;
    remote_key key;
    bool taken[slots] = {};
    bool closed = false;
    std::size_t in_use = 0;
};

struct act : completion {
    enum class kind { put, get, put_notify, fetch_add };

    act() : completion(&over) {}
    static void over(completion& self, status how, std::size_t bytes) noexcept;

    history* run = nullptr;
    std::shared_ptr<exposed> there;
    std::size_t slot = 0;
    kind what = kind::put;
    bytes_of here;
    std::uint64_t old = 0, before = 0, add = 0, notice = 0;
    std::vector<const_bytes> from;
    std::vector<mutable_bytes> into;
    int ends = 0;
    status how;
    bool canceled = false;
};

class history {
public:
    history(const std::string& where, std::uint64_t seed) : dice_(seed), where_(where) {
        open_initiator();
        open_target();
        meet();
    }
    ~history() {
        for (int i = 0; i < 3; ++i)
            if (dice_.chance(0.5)) post();
        if (dice_.chance(0.5)) {
            for (auto& each : regions_)
                each->opened = {};
            target_.reset();
            settle();
            initiator_.reset();
        } else {
            ending_ = true;
            initiator_.reset();
            for (auto& each : regions_)
                each->opened = {};
            target_.reset();
        }
        for (const auto& each : acts_)
            EXPECT_EQ(each->ends, 1);
        check_ended();
    }

    void step() {
        if (!initiator_->lost.empty()) {
            initiator_->lost.clear();
            meet();
        }
        switch (dice_.below(14)) {
            case 0:
            case 1:
            case 2:
            case 3:
                return post();
            case 4:
                if (dice_.chance(0.4)) return open();
                return;
            case 5:
                if (dice_.chance(0.15)) return close();
                return;
            case 6:
                if (dice_.chance(0.4)) return cancel();
                return;
            case 7:
                if (dice_.chance(0.02)) return part();
                return;
            case 8:
                if (dice_.chance(0.1)) check_ended();
                return;
            case 9:
            case 10:
                return move(*initiator_);
            default:
                return move(*target_);
        }
    }
    std::uint64_t direct() const { return initiator_->end->transfers().direct; }

    void ended(act& one, status how) {
        ++one.ends;
        one.how = how;
        finish(one);
        if (!ending_ && dice_.chance(0.2)) post();
        if (!ending_ && dice_.chance(0.05)) cancel();
        if (!ending_ && dice_.chance(0.02)) close();
    }

private:
    void open_initiator() {
        initiator_ =
            std::make_unique<tcp_test_port>(transport_registry::installed().open(where_).value());
    }
    void open_target() {
        target_ =
            std::make_unique<tcp_test_port>(transport_registry::installed().open(where_).value());
        target_->on_notice = [this](const put_notice& told) {
            EXPECT_GT(told.value, std::exchange(told_, told.value)) << "once, and in order";
        };
    }
    /// Sometimes goes on before the connection stands.
    void meet() {
        there_ = initiator_->look_up(target_->end->address());
        if (dice_.chance(0.2)) return;
        target_->arrived.clear();
        tcp_test_port::operation op;
        const posted how = initiator_->post(there_, 0, "hello", op);
        move_until({initiator_.get(), target_.get()},
                   [&] { return !target_->arrived.empty() && (how == posted::done || op.over); });
    }
    void move(tcp_test_port& one) {
        for (std::uint64_t rounds = dice_.below(20); rounds > 0; --rounds)
            one.end->progress(1 + dice_.below(64));
    }

    void part() {
        if (dice_.chance(0.5)) {
            initiator_->end->close(there_);
            meet();
            return;
        }
        for (auto& each : regions_) {
            each->opened = {};
            each->closed = true;
        }
        target_.reset();
        settle();
        open_target();
        meet();
        regions_.clear();
    }
    void settle() {
        while (initiator_->end->open_operations() > 0)
            initiator_->end->progress();
    }

    void open() {
        if (target_ == nullptr || regions_.size() > 6) return;  // Between two targets: see part().
        const std::size_t sizes[] = {8, 64, 1000 * 8, 70'000, 70'000, 1'200'000};
        auto made = std::make_shared<exposed>(sizes[dice_.below(6)], 1 + dice_.below(7));
        made->opened = target_->end->open_region(made->segments, access::read_write).value();
        made->key = made->opened.key();
        regions_.push_back(made);
    }
    /// Bytes of a region that closed with transfers under way are not promised anything.
    void close() {
        if (regions_.empty()) return;
        const std::size_t which = dice_.below(regions_.size());
        regions_[which]->opened = {};
        regions_[which]->closed = true;
        regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    void cancel() {
        if (acts_.empty()) return;
        act& one = *acts_[dice_.below(acts_.size())];
        if (one.ends > 0) return;
        one.canceled = true;
        initiator_->end->cancel(one);
    }

    void post() {
        if (regions_.empty()) return open();
        auto made = std::make_unique<act>();
        act& one = *made;
        one.run = this;
        one.there = regions_[dice_.below(regions_.size())];
        one.slot = dice_.below(exposed::slots);
        if (one.there->taken[one.slot]) return;
        one.what = act::kind(dice_.below(4));
        one.here = testing_support::pattern(one.there->slot, dice_());
        const std::uint64_t offset = one.slot * one.there->slot;
        posted how = posted::full;
        for (std::size_t at = 0; at < one.here.size();) {
            const std::size_t some = std::min<std::size_t>(
                one.here.size() - at, dice_.below(one.here.size() + 1) + (dice_.chance(0.9)));
            one.from.push_back(const_bytes(one.here).subspan(at, some));
            one.into.push_back(mutable_bytes(one.here).subspan(at, some));
            at += some;
        }
        std::memcpy(&one.before, one.there->model_of(one.slot).data(), 8);
        one.there->taken[one.slot] = true;
        switch (one.what) {
            case act::kind::put:
                how = initiator_->end->post_put(there_, one.from, one.there->key, offset, one);
                break;
            case act::kind::get:
                how = initiator_->end->post_get(there_, one.into, one.there->key, offset, one);
                break;
            case act::kind::put_notify:
                one.notice = ++last_notice_;
                how = initiator_->end->post_put_notify(there_, one.from, one.there->key, offset,
                                                       one.notice, one);
                break;
            case act::kind::fetch_add:
                one.add = dice_();
                how = initiator_->end->post_fetch_add(there_, one.there->key, offset, one.add,
                                                      &one.old, one);
        }
        acts_.push_back(std::move(made));
        if (how == posted::pending) return;
        one.ends = 1;
        one.how = how == posted::done ? status{} : status{errc::canceled};
        if (how == posted::full) one.canceled = true;
        finish(one);
    }

    void finish(act& one) {
        exposed& there = *one.there;
        const mutable_bytes model = there.model_of(one.slot), is = there.of(one.slot);
        const bool known = !there.closed && target_ != nullptr;
        if (one.how.ok()) {
            switch (one.what) {
                case act::kind::get:
                    EXPECT_TRUE(are_same(model, const_bytes(one.here).first(model.size())))
                        << "a get read something else";
                    break;
                case act::kind::fetch_add: {
                    EXPECT_EQ(one.old, one.before);
                    const std::uint64_t now = one.before + one.add;
                    std::memcpy(model.data(), &now, 8);
                    break;
                }
                default:
                    std::copy(one.here.begin(), one.here.end(), model.begin());
            }
        } else if (one.what != act::kind::get) {
            for (std::size_t i = 0; i < is.size() && one.what != act::kind::fetch_add; ++i)
                if (is[i] != model[i] && is[i] != one.here[i]) {
                    ADD_FAILURE() << "a put wrote something else";
                    break;
                }
            std::copy(is.begin(), is.end(), model.begin());
        }
        // An atomic operation that was canceled may happen yet.
        const bool at_rest = one.how.ok() || one.how == errc::denied ||
                             (one.how == errc::canceled && one.what != act::kind::fetch_add);
        if (known && at_rest) {
            EXPECT_TRUE(are_same(model, is)) << "the target differs";
        }
        // Of a connection that ended the target may still read what came before: that slot is left.
        if (at_rest) there.taken[one.slot] = false;
        std::fill(one.here.begin(), one.here.end(), std::byte{0x77});  // Ours again.
    }
    void check_ended() {
        std::erase_if(acts_, [&](const auto& each) {
            if (each->ends == 0) return false;
            EXPECT_EQ(each->ends, 1);
            EXPECT_TRUE(conformance::is_all(each->here, std::byte{0x77}))
                << "memory was touched after its transfer ended";
            return dice_.chance(0.3);
        });
        for (const auto& each : regions_)
            for (std::size_t slot = 0; slot < exposed::slots; ++slot)
                EXPECT_TRUE(each->taken[slot] || are_same(each->of(slot), each->model_of(slot)))
                    << "a target was written to after the transfer had ended";
    }

    seeded_random dice_;
    const std::string where_;
    std::unique_ptr<tcp_test_port> initiator_, target_;
    peer_id there_{};
    std::vector<std::shared_ptr<exposed>> regions_;
    std::deque<std::unique_ptr<act>> acts_;
    std::uint64_t told_ = 0;  ///< The latest notice.
    std::uint64_t last_notice_ = 0;
    bool ending_ = false;
};

inline void act::over(completion& self, status how, std::size_t) noexcept {
    auto& one = static_cast<act&>(self);
    one.run->ended(one, how);
}

/// Runs some, by seeds.
inline void expect_as_the_model_says(const std::string& where) {
    if (const auto opened = transport_registry::installed().open(where);
        opened.code() == errc::unsupported)
        GTEST_SKIP() << opened.sentence();
    std::uint64_t direct = 0;
    for (const std::uint64_t seed : seeded_runs(2)) {
        history run(where, seed);
        for (int i = 0; i < 2000; ++i)
            run.step();
        direct += run.direct();
    }
    EXPECT_GT(direct, 0u);
}

}  // namespace amalgam::detail::histories
