// A peer that lies about keys of its regions and asks for ours with wrong ones, over a port whose
// carrier has a device in memory; the user of the port meanwhile posts, cancels, closes, and does
// so in callbacks. The device is full, stalls, refuses and ends transfers in any order.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/frames/rma_frames.hpp"
#include "fabric/frames/wire_header.hpp"
#include "fabric/one_sided/frames.hpp"
#include "fabric/one_sided/memory_device_testing.hpp"
#include "fabric/packets/header.hpp"
#include "seeded_runs.hpp"

namespace amalgam::adversary {
namespace {

using namespace detail;
using bytes_of = std::vector<std::byte>;

constexpr std::size_t packet_bytes = 512;
constexpr std::size_t region_bytes = 3000;

void append(bytes_of& to, const_bytes more) {
    to.insert(to.end(), more.begin(), more.end());
}

// ---- packets between the port and the liar

class raw_link final : public packet_link {
public:
    posted send(packet& one) noexcept override {
        if (closed || refuses) {
            refused = !closed;
            return posted::full;
        }
        sent.emplace_back(one.data, one.data + one.bytes);
        return posted::done;
    }
    void close() noexcept override { closed = true; }

    std::deque<bytes_of> sent, to_come;
    bool closed = false, accepted = false, refuses = false, refused = false, hangs_up = false;
};

class raw_carrier final : public packet_carrier {
public:
    raw_carrier(memory_device::settings& with, std::vector<raw_link*>& links)
        : device(with), links_(links) {}
    void start(packet_events& events) noexcept override { events_ = &events; }
    std::string address() const override { return "raw://here"; }
    std::string explain() const override { return "a test asked for it"; }
    result<std::string> canonical(std::string_view one) const override { return std::string(one); }
    result<packet_link*> connect(std::string_view) override {
        raw_link& made = add();
        made.accepted = true;
        return static_cast<packet_link*>(&made);
    }
    void release(packet_link& one) noexcept override {
        std::erase(links_, &one);
        std::erase_if(all_, [&](const auto& each) { return each.get() == &one; });
    }
    std::size_t progress(std::size_t) noexcept override {
        std::size_t count = device.run();
        for (std::size_t i = 0; i < links_.size(); ++i) {
            raw_link& one = *links_[i];
            if (one.closed) continue;
            if (!one.accepted) {
                one.accepted = true;
                if (!events_->accepted(one, "raw://there")) one.closed = true;
            }
            if (one.refused && !one.refuses && !std::exchange(one.refused, false))
                events_->room(one);
            for (; !one.closed && !one.to_come.empty(); ++count) {
                const bytes_of next = std::move(one.to_come.front());
                one.to_come.pop_front();
                events_->received(one, next);
            }
            if (!one.closed && one.hangs_up) {
                one.closed = true;
                events_->down(one, {errc::disconnected});
            }
        }
        return count;
    }
    int wait_handle() const noexcept override { return -1; }
    bool arm() noexcept override { return false; }
    one_sided_carrier* one_sided() noexcept override { return &device; }

    raw_link& add() {
        all_.push_back(std::make_unique<raw_link>());
        links_.push_back(all_.back().get());
        return *all_.back();
    }

    memory_device device;

private:
    packet_events* events_ = nullptr;
    std::vector<raw_link*>& links_;
    std::vector<std::unique_ptr<raw_link>> all_;
};

// ---- the liar

/// What it tells of a region of its own: memory that the device can reach.
struct lied_region {
    remote_key key;
    bytes_of memory = bytes_of(region_bytes);
    std::uint64_t numbers[3] = {};
    std::uint64_t secret = 0;
};

struct unanswered {
    frame_kind kind;
    std::uint64_t tag = 0;
    bytes_of payload;
};

class liar {
public:
    liar(std::uint64_t seed, std::deque<lied_region>& regions, std::vector<remote_key>& theirs)
        : dice_(seed), regions_(regions), theirs_(theirs) {}

    void meet(raw_link& one) {
        link_ = &one;
        stream_.clear();
        asked_.clear();
        outstanding_ = used_ = 0;
        if (dice_.chance(0.03)) return;  // Says nothing.
        packet_hello hello;
        hello.packet_bytes = packet_bytes;
        hello.incarnation = dice_() | 1;
        bytes_of made(packet_hello::wire_bytes);
        hello.encode(made.data());
        send(packet_kind::hello, made);
        frame(frame_kind::unexpected, 1, {});  // Who is there?
    }
    raw_link* link() { return link_; }
    void forget() { link_ = nullptr; }

    void step() {
        read();
        switch (dice_.below(12)) {
            case 0:
                return ask();
            case 1:  // A flood.
                for (std::uint64_t i = dice_.chance(0.02) ? 40 : 3; i > 0; --i)
                    ask();
                return;
            case 2:
                return frame(key_gone_kind, dice_.chance(0.7) ? pick().key.region : dice_(),
                             noise(dice_.chance(0.995) ? 0 : 4));
            case 3:
                if (dice_.chance(0.98)) return;
                return frame(frame_kind{static_cast<std::uint8_t>(dice_.below(32))}, dice_.below(9),
                             noise(dice_.below(300)));
            case 4:
                link_->refuses = dice_.chance(0.5);
                return;
            case 5:
                return write();
            default:
                for (int i = 0; i < 4; ++i)
                    answer();
                return;
        }
    }

    std::size_t questions = 0;  ///< Most that were unanswered at a time.

private:
    lied_region& pick() { return regions_[dice_.below(regions_.size())]; }
    bytes_of noise(std::size_t bytes) {
        bytes_of made(bytes);
        for (std::byte& one : made)
            one = static_cast<std::byte>(dice_());
        return made;
    }
    void send(packet_kind kind, const bytes_of& rest) {
        bytes_of made(packet_header::wire_bytes);
        packet_header{kind, static_cast<std::uint16_t>(used_)}.encode(made.data());
        used_ = 0;
        append(made, rest);
        link_->to_come.push_back(std::move(made));
    }
    /// A frame in some packets.
    void frame(frame_kind kind, std::uint64_t tag, const bytes_of& payload) {
        if (outstanding_ > 40) return;  // It keeps to the window.
        bytes_of all;
        append(all, to_wire(header_of(kind, tag, payload.size())));
        append(all, payload);
        for (std::size_t at = 0; at < all.size(); ++outstanding_) {
            const std::size_t some = std::min(
                all.size() - at, 1 + dice_.below(packet_bytes - packet_header::wire_bytes));
            const auto from = all.begin() + static_cast<std::ptrdiff_t>(at);
            send(packet_kind::frames, {from, from + static_cast<std::ptrdiff_t>(some)});
            at += some;
        }
    }

    /// What the port sent.
    void read() {
        while (!link_->sent.empty()) {
            const bytes_of one = std::move(link_->sent.front());
            link_->sent.pop_front();
            const packet_header header = packet_header::decode(one.data());
            outstanding_ -= std::min<std::size_t>(outstanding_, header.credit);
            if (header.kind != packet_kind::frames) continue;
            ++used_;
            append(stream_, const_bytes(one).subspan(packet_header::wire_bytes));
        }
        if (used_ > 0 && dice_.chance(0.8)) send(packet_kind::credit, {});
        std::size_t at = 0;
        while (stream_.size() - at >= sizeof(frame_header)) {
            const frame_header header = from_wire(stream_.data() + at);
            if (stream_.size() - at - sizeof header < header.bytes) break;
            const auto from = stream_.begin() + static_cast<std::ptrdiff_t>(at + sizeof header);
            asked_.push_back({header.kind, header.tag, {from, from + header.bytes}});
            at += sizeof header + header.bytes;
        }
        stream_.erase(stream_.begin(), stream_.begin() + static_cast<std::ptrdiff_t>(at));
        questions = std::max<std::size_t>(
            questions, static_cast<std::size_t>(std::count_if(
                           asked_.begin(), asked_.end(),
                           [](const auto& one) { return one.kind == key_question_kind; })));
    }

    void ask() {
        remote_key key;
        if (!theirs_.empty()) key = theirs_[dice_.below(theirs_.size())];
        switch (dice_.below(8)) {
            case 0:
                key.secret ^= std::uint64_t{1} << dice_.below(64);
                break;
            case 1:
                key.region ^= std::uint64_t{1} << dice_.below(64);
                break;
            case 2:
                key.bytes = dice_();
                break;
            case 3:
                key.rights = access{static_cast<std::uint8_t>(dice_())};
                break;
            default:
                break;
        }
        bytes_of payload;
        append(payload, key.encode());
        append(payload, noise(dice_.chance(0.998) ? dice_.below(129) : dice_.below(180)));
        frame(key_question_kind, dice_.below(30), payload);
    }

    /// A put with a key that the port never issued.
    void write() {
        if (theirs_.empty()) return;
        remote_key key = theirs_[dice_.below(theirs_.size())];
        key.secret ^= std::uint64_t{1} << dice_.below(64);
        bytes_of payload(rma_request_bytes);
        write_request(payload.data(), {key, dice_.below(100), 50});
        append(payload, noise(50));
        frame(frame_kind::put, dice_.below(30), payload);
    }

    void answer() {
        if (asked_.empty()) return;
        const std::size_t which = dice_.chance(0.99) ? 0 : dice_.below(asked_.size());
        const unanswered one = asked_[which];
        if (dice_.chance(0.95)) asked_.erase(asked_.begin() + static_cast<std::ptrdiff_t>(which));
        switch (one.kind) {
            case key_question_kind:
                return answer_key(one);
            case frame_kind::put:
            case frame_kind::put_notify:
            case frame_kind::fetch_add:
                return say_done(one.tag, dice_.chance(0.5) && one.kind != frame_kind::fetch_add
                                             ? status{}
                                             : status{errc::denied});
            case frame_kind::get: {
                const rma_request request = read_request(one.payload.data());
                if (dice_.chance(0.3)) return say_done(one.tag, {errc::denied});
                bytes_of data(rma_data_prefix_bytes);
                store_le(data.data(), request.offset);
                append(data, noise(request.bytes));
                return frame(frame_kind::get_data, one.tag, data);
            }
            default:
                return;
        }
    }
    void say_done(std::uint64_t tag, status how) {
        bytes_of raw(rma_status_bytes);
        write_status(raw.data(), how);
        frame(frame_kind::rma_done, tag, raw);
    }
    void answer_key(const unanswered& one) {
        const auto key = remote_key::decode(
            std::span<const std::byte, remote_key::wire_bytes>(one.payload.data(), 40));
        if (dice_.chance(0.1)) return say_key(one.tag, {0, 0, 0}, {});
        const auto found = std::find_if(regions_.begin(), regions_.end(), [&](const auto& each) {
            return each.key.region == key.region;
        });
        if (found == regions_.end()) return say_key(one.tag, {0, 0, 0}, {});
        const std::uint16_t count = 3;
        for (std::uint16_t i = 0; i < count; ++i) {
            key_answer next{i, count, region_bytes / count};
            bytes_of told(16);
            store_le(told.data(), found->numbers[i]);
            store_le(told.data() + 8, found->secret);
            switch (dice_.below(150)) {
                case 0:
                    told = noise(dice_.below(193));  // Not a key.
                    break;
                case 1:
                    store_le(told.data(), dice_());  // Of nothing.
                    break;
                case 2:
                    next.count = static_cast<std::uint16_t>(dice_());
                    break;
                case 3:
                    next.index = static_cast<std::uint16_t>(dice_.below(5));
                    break;
                case 4:
                    next.bytes = dice_.chance(0.5) ? dice_() : dice_.below(5000);
                    break;
                case 5:
                    return;  // Never the rest.
                case 6:
                    return say_key(one.tag, {0, 0, 0}, {});  // After a part.
                case 7:
                    frame(key_gone_kind, key.region, {});  // In the midst.
                    break;
                case 8:
                    say_key(one.tag + dice_.below(3), next, told);
                    break;
                default:
                    break;
            }
            say_key(one.tag, next, told);
        }
        if (dice_.chance(0.05)) say_key(one.tag, {0, count, 1000}, noise(16));
    }
    void say_key(std::uint64_t tag, const key_answer& what, const bytes_of& told) {
        bytes_of payload(key_answer::wire_bytes);
        what.encode(payload.data());
        append(payload, told);
        if (payload.size() > max_key_frame_bytes) payload.resize(max_key_frame_bytes);
        frame(key_answer_kind, tag, payload);
    }

    seeded_random dice_;
    std::deque<lied_region>& regions_;
    std::vector<remote_key>& theirs_;
    raw_link* link_ = nullptr;
    bytes_of stream_;
    std::vector<unanswered> asked_;
    std::size_t outstanding_ = 0;
    std::size_t used_ = 0;
};

// ---- the user

class run_of_a_user;

struct user_operation : completion {
    user_operation() : completion(&over) {}
    static void over(completion& self, status how, std::size_t) noexcept;

    run_of_a_user* user = nullptr;
    bytes_of memory;
    std::vector<const_bytes> from;
    std::vector<mutable_bytes> into;
    std::uint64_t old = 0;
    int ends = 0;
    bool is_pending = false;
    bool may_be_touched = false;
};

class run_of_a_user final : public message_sink {
public:
    explicit run_of_a_user(std::uint64_t seed)
        : dice_(seed), liar_(dice_(), regions_, shown_keys_) {
        with_.facts.piece_bytes = 1 + dice_.below(600);
        with_.facts.window = 1 + dice_.below(5);
        with_.room = 1 + dice_.below(8);
        for (std::uint64_t i = 1; i <= 6; ++i) {
            lied_region& one = regions_.emplace_back();
            one.key.secret = dice_();
            one.key.region = i;
            one.key.bytes = region_bytes;
            one.key.rights = access::read_write;
            one.secret = dice_();
            for (std::size_t part = 0; part < 3; ++part)
                one.numbers[part] = memory_network::instance().add(
                    {one.secret, mutable_bytes(one.memory).subspan(part * 1000, 1000),
                     access::read_write});
        }
        port_options options;
        options.silence_limit = std::chrono::milliseconds(gives_up_ ? 1 : 5000);
        packet_port_traits traits;
        traits.transport = "raw";
        traits.packet_bytes = packet_bytes;
        auto made = std::make_unique<raw_carrier>(with_, links_);
        carrier_ = made.get();
        port_ = make_packet_port(std::move(made), traits, options);
        port_->set_sink(this);
    }
    ~run_of_a_user() {
        with_.stalled = dice_.chance(0.03);
        shown_.clear();
        ending_ = true;
        port_.reset();
        EXPECT_EQ(with_.opened, with_.closed);
        for (const auto& each : operations_)
            check_end(*each);
        for (const lied_region& one : regions_)
            for (const std::uint64_t number : one.numbers)
                memory_network::instance().remove(number);
        EXPECT_LE(liar_.questions, 17u) << "and one that was dropped";
    }

    void step() {
        if (liar_.link() != nullptr &&
            std::find(links_.begin(), links_.end(), liar_.link()) == links_.end())
            liar_.forget();
        if (links_.empty()) {
            raw_link& made = dice_.chance(0.5) ? look_up() : carrier_->add();
            liar_.meet(made);
        }
        if (liar_.link() != nullptr && !liar_.link()->closed) liar_.step();
        if (dice_.chance(0.003)) links_.front()->hangs_up = true;
        switch (dice_.below(10)) {
            case 0:
            case 1:
            case 2:
                return post();
            case 3:
                if (dice_.chance(0.3)) with_.stalled = dice_.chance(0.4);
                if (dice_.chance(0.2)) with_.registers = dice_.chance(0.7);
                if (dice_.chance(0.1)) with_.exposes = dice_.chance(0.8);
                with_.delay = static_cast<unsigned>(dice_.below(4));
                return;
            case 4:
                return open_or_close();
            case 5:
                return cancel();
            default:
                port_->progress(1 + dice_.below(64));
        }
    }

    void ended(user_operation& one, status how) {
        ++one.ends;
        one.may_be_touched =
            gives_up_ && (how.code == errc::disconnected || how.code == errc::closed);
        EXPECT_TRUE(std::exchange(one.is_pending, false));
        std::fill(one.memory.begin(), one.memory.end(), std::byte{0x77});  // Ours again.
        if (ending_) {
            EXPECT_TRUE(with_.ended);
            return;
        }
        if (dice_.chance(0.1)) post();
        if (dice_.chance(0.05)) cancel();
        if (dice_.chance(0.05)) open_or_close();
        if (dice_.chance(0.01)) port_->close(peer_);
    }

    void on_message(message& one) noexcept override { peer_ = one.from(); }
    void on_peer_down(peer_id, status) noexcept override {}

private:
    raw_link& look_up() {
        peer_ = port_->lookup("raw://there").value();
        return *links_.back();
    }
    void post() {
        if (operations_.size() > 3000) return;
        auto made = std::make_unique<user_operation>();
        user_operation& one = *made;
        one.user = this;
        const lied_region& there = regions_[dice_.below(regions_.size())];
        const std::size_t bytes = dice_.below(region_bytes);
        const std::size_t offset = dice_.below(region_bytes - bytes);
        one.memory.resize(bytes);
        for (std::size_t at = 0; at < bytes;) {
            const std::size_t some = std::min<std::size_t>(bytes - at, 1 + dice_.below(2000));
            one.from.push_back(const_bytes(one.memory).subspan(at, some));
            one.into.push_back(mutable_bytes(one.memory).subspan(at, some));
            at += some;
        }
        one.is_pending = true;
        posted how;
        switch (dice_.below(5)) {
            case 0:
            case 1:
                how = port_->post_put(peer_, one.from, there.key, offset, one);
                break;
            case 2:
                how = port_->post_get(peer_, one.into, there.key, offset, one);
                break;
            case 3:
                how = port_->post_put_notify(peer_, one.from, there.key, offset, 1, one);
                break;
            default:
                how = port_->post_fetch_add(peer_, there.key, offset, 1, &one.old, one);
        }
        EXPECT_EQ(one.ends, 0) << "in a post";
        if (how == posted::pending) operations_.push_back(std::move(made));
    }
    void cancel() {
        if (operations_.empty()) return;
        user_operation& one = *operations_[dice_.below(operations_.size())];
        if (one.is_pending) port_->cancel(one);
    }
    void open_or_close() {
        if (shown_.size() < 4) {
            auto made = std::make_unique<shown_region>();
            made->bytes.assign(500, std::byte{5});
            const mutable_bytes all(made->bytes);
            const mutable_bytes parts[] = {all.first(100), all.subspan(100, 0), all.subspan(100)};
            made->opened = port_->open_region(parts, access::read_write).value();
            shown_keys_.push_back(made->opened.key());
            if (shown_keys_.size() > 8) shown_keys_.erase(shown_keys_.begin());
            shown_.push_back(std::move(made));
            return;
        }
        EXPECT_EQ(shown_.front()->bytes, bytes_of(500, std::byte{5})) << "a forged key opened it";
        shown_.erase(shown_.begin());
    }
    static void check_end(const user_operation& one) {
        EXPECT_EQ(one.ends, 1);
        if (one.may_be_touched) return;
        EXPECT_EQ(one.memory, bytes_of(one.memory.size(), std::byte{0x77})) << "touched afterwards";
    }

    struct shown_region {
        bytes_of bytes;
        region opened;
    };

    seeded_random dice_;
    const bool gives_up_ = dice_.chance(0.2);  ///< While the device still holds transfers.
    memory_device::settings with_;
    std::deque<lied_region> regions_;
    std::vector<remote_key> shown_keys_;
    std::vector<raw_link*> links_;
    raw_carrier* carrier_ = nullptr;
    std::unique_ptr<port> port_;
    peer_id peer_{};
    std::vector<std::unique_ptr<user_operation>> operations_;
    std::vector<std::unique_ptr<shown_region>> shown_;
    liar liar_;
    bool ending_ = false;
};

void user_operation::over(completion& self, status how, std::size_t) noexcept {
    auto& one = static_cast<user_operation&>(self);
    one.user->ended(one, how);
}

TEST(one_sided_adversary, peer_that_lies_about_keys_breaks_nothing) {
    for (const std::uint64_t seed : seeded_runs(100)) {
        run_of_a_user run(seed);
        for (int i = 0; i < 1500; ++i)
            run.step();
    }
}

}  // namespace
}  // namespace amalgam::adversary
