// A peer that speaks the messages of rpc (docs/wire/rpc.md) and descriptors (docs/wire/bulk.md),
// first mostly right and then wrong, against an engine that serves and calls it, while a good
// client uses that engine.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/tasks/ult.hpp>

#include "numbers.hpp"
#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/peers/routes.hpp"
#include "rpc/wire/wire.hpp"
#include "seeded_runs.hpp"

namespace amalgam::adversary {
namespace {

using namespace std::literals;
using namespace detail;
using amalgam::bulk;
using bytes_of = std::vector<std::byte>;

constexpr std::size_t large_bytes = 100'000;  // Above any port's eager limit.

/// Small enough for a liar to reach all of them.
engine_options bounded() {
    return {.ports = {.max_queued_bytes = 1 << 20, .max_queued_bytes_total = 4 << 20},
            .max_running = 200,
            .max_unread_bytes = 1 << 20,
            .max_borrowed_bytes = 500'000,
            .max_borrowed_bytes_total = 2'000'000,
            .max_values_bytes = 1 << 20};
}

/// Where the engines and the liar meet: in virtual time, or over sockets.
class world {
public:
    explicit world(bool is_virtual) {
        if (is_virtual) net_.emplace(loop_options{.inline_bytes = 4096, .link_bytes = 256 << 10});
    }
    std::unique_ptr<port> open(const std::string& name) {
        if (net_) return net_->port(name);
        return transport_registry::native().open("tcp://127.0.0.1:0").value();
    }
    std::unique_ptr<engine> start(const std::string& name, const engine_options& how = {}) {
        if (net_) return std::make_unique<engine>(net_->port(name, how.ports), how);
        return std::make_unique<engine>("tcp://127.0.0.1:0", how);
    }
    void move(port* liar) {
        if (net_) {
            net_->run_for(1ms);
        } else if (liar != nullptr) {
            for (int i = 0; i < 20; ++i)
                liar->progress();
        }
    }
    template <typename T>
    T get(future<T>& later) {
        while (net_ && !later.ready())
            net_->run_for(1ms);
        return later.get();
    }
    template <typename Condition>
    void move_until(Condition reached) {
        while (!reached())
            net_ ? net_->run_for(1ms) : std::this_thread::yield();
    }

private:
    std::optional<loop_network> net_;
};

// ---- the victim

void serve(engine& victim) {
    victim.define("sum", [](unsigned a, unsigned b) { return a + b; }, {.run = handler::inline_});
    victim.define("echo", [](std::string text) { return text; });
    victim.define("note", [](std::string) {});
    victim.define("slow", [](int ms) {
        this_task::sleep_for(std::chrono::milliseconds(ms & 7));
        return ms;
    });
    victim.define("later", [](responder<int> answer, int a) { answer(a); });
    victim.define("count", [](stream_writer<int>& out, int to) {
        for (int i = 0; i < (to & 0xfff); ++i)
            out(i);
    });
    victim.define("pages", [](stream_writer<std::string>& out, int count) {
        for (int i = 0; i < (count & 7); ++i)
            out(std::string(large_bytes, 'p'));
    });
    victim.define("read", [](stream_reader<std::string>& in) {
        std::size_t bytes = 0;
        for (const std::string& each : in)
            bytes += each.size();
        return bytes;
    });
    victim.define("both", [](stream_reader<int>& in, stream_writer<int>& out) {
        for (const int each : in)
            out(each);
    });
    victim.define("store", [](bulk data) {
        bytes_of into(std::min<std::uint64_t>(data.bytes(), large_bytes));
        data.pull(into);
        return into.size();
    });
    victim.define("fill", [](bulk data) {
        const bytes_of from(std::min<std::uint64_t>(data.bytes(), large_bytes));
        data.push(from);
    });
    victim.define("give", [&victim] {
        return expose_owned(victim, std::string(large_bytes, 'g'), access::read_write);
    });
    // Calls its caller.
    victim.define("ask_back", [&victim](int a) {
        return victim.procedure<int(int)>("f").on(call_context::current().from()).within(20ms)(a);
    });
    victim.define("keep_on", [&victim](std::string) {
        victim.procedure<void(int)>("f").on(call_context::current().from()).post(1);
    });
}

/// Procedures that a liar calls.
std::vector<std::pair<std::string, std::string>> names_of_victim() {
    return {{"sum", signature_text<unsigned(unsigned, unsigned)>()},
            {"echo", signature_text<std::string(std::string)>()},
            {"note", signature_text<void(std::string)>()},
            {"slow", signature_text<int(int)>()},
            {"later", signature_text<int(int)>()},
            {"count", signature_text<streamed<int>(int)>()},
            {"pages", signature_text<streamed<std::string>(int)>()},
            {"read", signature_text<std::size_t(streaming<std::string>)>()},
            {"both", signature_text<streamed<int>(streaming<int>)>()},
            {"amalgam.stream", "stream<values>(u64)"},
            {"store", signature_text<std::size_t(bulk)>()},
            {"fill", signature_text<void(bulk)>()},
            {"give", signature_text<bulk()>()},
            {"ask_back", signature_text<int(int)>()},
            {"keep_on", signature_text<void(std::string)>()},
            {"amalgam.introduce", signature_text<introduction(introduction)>()},
            {"amalgam.part", signature_text<void(std::uint32_t)>()},
            {"nobody", "()"}};
}

// ---- the lying peer

class liar final : public message_sink {
public:
    liar(std::unique_ptr<port> line, const std::string& victim, std::uint64_t seed)
        : dice_(seed), line_(std::move(line)), memory_(2 * large_bytes) {
        line_->set_sink(this);
        there_ = line_->lookup(victim).value();
        shown_ = line_->open_region(mutable_bytes(memory_), access::read_write).value();
    }
    ~liar() {
        if (dice_.chance(0.5)) line_->close(there_);
        shown_ = {};
        line_.reset();  // Ends operations in flight.
    }

    port& line() noexcept { return *line_; }

    void step() {
        switch (dice_.below(16)) {
            case 0:
                return send(some_id(), noise(dice_.below(80)));
            case 1:
                return send(some_id(), outcome(message_kind::reply));
            case 2:
                return send(some_id(), outcome(message_kind::item));
            case 3:
                return send(dice_.chance(0.8) ? 0 : dice_(), outcome(message_kind::verdict));
            case 4:
                return send(dice_.chance(0.8) ? own_id() : some_id(), cancel());
            case 5:
                return send(dice_.chance(0.8) ? own_id() : some_id(), credit());
            case 6:
                return send(dice_.chance(0.9) ? 0 : dice_(), release());
            case 7:
                return move_bytes();
            case 8:
                return dice_.chance(0.05) ? meet_again() : introduce();
            default:
                return ask();
        }
    }

    void on_message(message& arrived) noexcept override {
        parsed_message parsed;
        if (parse(arrived.bytes(), parsed) != nullptr) return;
        for (const_bytes ids = loans_in(parsed.extras); ids.size() >= 8; ids = ids.subspan(8))
            remember(lent_, load_le<std::uint64_t>(ids.data()));
        if (const auto rendezvous = rendezvous_in(parsed.extras)) remember(keys_, rendezvous->key);
        find_key(parsed.body);
        if (parsed.kind != message_kind::request) return;
        remember(asked_, arrived.tag());
        if (parsed.body.size() >= 8)  // Perhaps of values that it may read.
            remember(streams_, load_le<std::uint64_t>(parsed.body.data()));
        remember(who_, arrived.from());
        if (dice_.chance(0.1)) return;  // And never answers.
        for (std::uint64_t i = dice_.below(4); i > 0; --i)
            send_to(arrived.from(), arrived.tag(), outcome(message_kind::item));
        if (dice_.chance(0.5)) send_to(arrived.from(), arrived.tag(), outcome(message_kind::reply));
    }
    void on_peer_down(peer_id gone, status) noexcept override {
        std::erase(who_, gone);
        if (gone == there_) meets_again_ = true;
    }

    /// The victim has disconnected it: it reconnects.
    void come_again(const std::string& victim) {
        if (!std::exchange(meets_again_, false)) return;
        if (auto met = line_->lookup(victim)) there_ = *met;
    }

private:
    template <typename T>
    static void remember(std::vector<T>& all, const T& one) {
        if (all.size() > 200) all.erase(all.begin(), all.begin() + 100);
        all.push_back(one);
    }
    template <typename T>
    const T& any_of(const std::vector<T>& all) {
        return all[dice_.below(all.size())];
    }
    bytes_of noise(std::size_t bytes) {
        bytes_of made(bytes);
        for (std::byte& one : made)
            one = static_cast<std::byte>(dice_());
        return made;
    }
    static void append(bytes_of& to, const_bytes more) {
        to.insert(to.end(), more.begin(), more.end());
    }
    template <typename T>
    static void append_number(bytes_of& to, T number) {
        to.resize(to.size() + sizeof number);
        store_le(to.data() + to.size() - sizeof number, number);
    }
    /// A number near a limit, or any.
    std::uint64_t number() {
        return number_near(dice_, {0, 1, 7, 8, 255, 65535, 65536, 1u << 20, 0xffffffff});
    }

    /// Id of a call of the victim's or its own; in flight, over, or never made.
    bytes_of stream_id() {
        bytes_of made;
        append_number(made, streams_.empty() || dice_.chance(0.1) ? number() : any_of(streams_));
        return made;
    }
    std::uint64_t some_id() {
        std::uint64_t id = dice_.below(4);
        if (!asked_.empty() && dice_.chance(0.8))
            id = any_of(asked_);
        else if (asks_ != 0 && dice_.chance(0.8))
            id = 1 + dice_.below(asks_);
        if (dice_.chance(0.1)) id ^= std::uint64_t{1} << dice_.below(64);
        return id;
    }
    /// Id of one of its own latest calls, which may still be in flight.
    std::uint64_t own_id() {
        const std::uint64_t back = dice_.below(4);
        return asks_ > back ? asks_ - back : 1;
    }
    std::uint64_t some_loan() {
        return !lent_.empty() && dice_.chance(0.8) ? any_of(lent_) : number();
    }
    remote_key some_key() {
        remote_key key = shown_.key();
        if (!keys_.empty() && dice_.chance(0.5)) key = any_of(keys_);
        if (dice_.chance(0.7)) return key;
        switch (dice_.below(5)) {
            case 0:
                key.secret ^= dice_();
                break;
            case 1:
                key.region = number();
                break;
            case 2:
                key.incarnation = number();
                break;
            case 3:
                key.bytes = number();
                break;
            default:
                key.rights = access{static_cast<std::uint8_t>(dice_())};
        }
        return key;
    }

    // ---- messages

    void send(std::uint64_t tag, bytes_of what) {
        const bool back = !who_.empty() && dice_.chance(0.3);
        send_to(back ? any_of(who_) : there_, tag, std::move(what));
    }
    void send_to(peer_id to, std::uint64_t tag, bytes_of what) {
        if (!what.empty() && dice_.chance(0.1)) spoil(what);
        struct sent final : completion {
            sent()
                : completion([](completion& c, status, std::size_t) noexcept {
                      delete static_cast<sent*>(&c);
                  }) {}
            bytes_of bytes;
            const_bytes piece;
        };
        auto* const done = new sent;
        done->bytes = std::move(what);
        done->piece = done->bytes;
        if (line_->post_send(to, tag, gather(&done->piece, 1), *done) != posted::pending)
            delete done;
    }
    void spoil(bytes_of& what) {
        switch (dice_.below(4)) {
            case 0:
                what.resize(dice_.below(what.size()));
                return;
            case 1:
                return append(what, noise(1 + dice_.below(40)));
            default: {  // Mostly in the header.
                const std::size_t most = dice_.chance(0.7) ? 24 : what.size();
                what[dice_.below(std::min(what.size(), most))] ^=
                    static_cast<std::byte>(1 + dice_.below(255));
            }
        }
    }
    void add_checksum(bytes_of& what) {
        const const_bytes all(what);
        const auto sum = checksum_of({&all, 1});
        append(what, sum);
    }
    bytes_of extras() {
        bytes_of made;
        for (std::uint64_t i = dice_.below(4); i > 0; --i) {
            switch (dice_.below(8)) {
                case 0:
                    add_extra(made, extra::trace, noise(32));
                    break;
                case 1:
                    add_metadata(made, "key", "value");
                    break;
                case 2:
                case 3: {
                    bytes_of ids;
                    for (std::uint64_t k = dice_.below(4); k > 0; --k)
                        append_number(ids, some_loan());
                    add_extra(made, extra::loans, ids);
                    break;
                }
                case 4:
                case 5:
                    add_extra(made, extra::rendezvous, some_key().encode());
                    break;
                case 6: {
                    bytes_of window;
                    append_number(window, dice_.chance(0.8) ? dice_.below(9) : number());
                    add_extra(made, extra::window, window);
                    break;
                }
                default:
                    add_extra(made, extra{static_cast<std::uint16_t>(dice_.below(9))},
                              noise(dice_.below(50)));
            }
        }
        if (!made.empty() && dice_.chance(0.1)) {
            store_le(made.data() + 4 * dice_.below(made.size() / 4),
                     static_cast<std::uint32_t>(number()));
        }
        return made;
    }
    bytes_of descriptor() {
        bytes_of made;
        const std::uint64_t ways = dice_.chance(0.8) ? 1 : dice_.below(70);
        append_number(made, dice_.chance(0.9) ? std::uint8_t{0x12}
                                              : static_cast<std::uint8_t>(dice_.below(0x20)));
        append_number(made,
                      dice_.chance(0.8) ? std::uint8_t{3} : static_cast<std::uint8_t>(dice_()));
        append_number(made, static_cast<std::uint16_t>(ways));
        append_number(made, static_cast<std::uint16_t>(dice_.chance(0.8) ? 0 : number()));
        append_number(made, static_cast<std::uint16_t>(dice_.chance(0.97) ? 0 : number()));
        const remote_key key = some_key();
        append_number(made, dice_.chance(0.8) ? dice_.below(large_bytes) : number());
        append_number(made, dice_.chance(0.8) ? dice_.below(1000) : number());
        append_number(made, key.bytes);
        append_number(made, key.secret);
        append_number(made, dice_.chance(0.5) ? key.incarnation : homes_);
        append_number(made, dice_.chance(0.5) ? 0 : some_loan());
        for (std::uint64_t i = 0; i < ways; ++i) {
            append_number(made, key.secret);
            append_number(made, key.region);
            append_number(made, key.incarnation);
            const std::string address =
                dice_.chance(0.6) ? line_->address() : std::string(dice_.below(40), ':');
            append_number(
                made, static_cast<std::uint32_t>(dice_.chance(0.97) ? address.size() : number()));
            append(made, as_bytes(address));
        }
        return made;
    }
    bytes_of text() {
        const std::size_t bytes = dice_.below(dice_.chance(0.9) ? 300 : 60'000);
        bytes_of made;
        append_number(made, static_cast<std::uint32_t>(dice_.chance(0.95) ? bytes : number()));
        made.resize(made.size() + bytes);
        return made;
    }
    bytes_of values() {
        switch (dice_.below(6)) {
            case 0:
                return descriptor();
            case 1:
                return text();
            case 2:
                return noise(dice_.below(50));
            case 3:
                return {};
            default:
                return noise(4);
        }
    }
    bytes_of arguments_for(const std::string& name) {
        if (dice_.chance(0.1)) return values();
        if (name == "sum") return noise(8);
        if (name == "echo" || name == "note" || name == "keep_on") return text();
        if (name == "store" || name == "fill") return descriptor();
        if (name == "read" || name == "both") return noise(8);
        if (name == "amalgam.stream") return stream_id();
        if (name == "give" || name == "nobody") return {};
        if (name == "amalgam.introduce") return introduction_bytes();
        return noise(4);
    }
    void ask() {
        static const auto names = names_of_victim();
        const auto& [name, signature] = any_of(names);
        const bool one_way = dice_.chance(0.2);
        const bool streams =
            name == "count" || name == "pages" || name == "both" || name == "amalgam.stream";
        std::uint8_t flags = 0;
        bytes_of more, named;
        if (dice_.chance(0.3)) more = extras();
        if (streams && dice_.chance(0.9)) {
            bytes_of window;
            append_number(window, dice_.chance(0.9) ? dice_.below(20) : number());
            more.clear();
            add_extra(more, extra::window, window);
        }
        if (!more.empty()) flags |= wire_flag::extras;
        if (dice_.chance(0.2)) flags |= wire_flag::urgent;
        if (dice_.chance(0.1)) flags |= wire_flag::xdr;
        if (dice_.chance(0.1)) flags |= wire_flag::checked;
        if (dice_.chance(0.3)) {
            flags |= wire_flag::named;
            const std::string text = names_text(name, dice_.chance(0.9) ? signature : "()");
            append(named, as_bytes(text));
            if (dice_.chance(0.1))
                store_le(named.data() + 2 * dice_.below(4), static_cast<std::uint16_t>(number()));
        }
        if (dice_.chance(0.02)) flags = static_cast<std::uint8_t>(dice_());
        bytes_of all(request_bytes);
        write_request(
            all.data(),
            {.kind = one_way ? message_kind::one_way : message_kind::request,
             .flags = flags,
             .provider = static_cast<std::uint16_t>(dice_.chance(0.95) ? 0 : number()),
             .microseconds = static_cast<std::uint32_t>(dice_.chance(0.7) ? 0 : dice_.below(5000)),
             .procedure = procedure_id(name, signature)});
        append(all, more);
        append(all, named);
        append(all, arguments_for(name));
        if ((flags & wire_flag::checked) != 0) add_checksum(all);
        // Ids of its own: new, or already used.
        const std::uint64_t id = dice_.chance(0.9) ? ++asks_ : 1 + dice_.below(asks_ + 1);
        send_to(there_, one_way && dice_.chance(0.9) ? 0 : id, std::move(all));
    }
    bytes_of outcome(message_kind kind) {
        constexpr errc codes[] = {errc::timed_out,   errc::overloaded,  errc::not_found,
                                  errc::mismatch,    errc::unavailable, errc::closed,
                                  errc::no_memory,   errc::corrupt,     errc::handler_failed,
                                  errc::disconnected};
        const bool good = dice_.chance(0.7);
        status what = good ? status{} : status{codes[dice_.below(std::size(codes))]};
        if (dice_.chance(0.03)) what = {errc{static_cast<std::uint8_t>(dice_())}};
        if (dice_.chance(0.1)) what.native = static_cast<std::int32_t>(number());
        const bytes_of more = dice_.chance(0.5) ? extras() : bytes_of{};
        std::uint8_t flags = more.empty() ? 0 : wire_flag::extras;
        if (dice_.chance(0.05)) flags |= wire_flag::xdr;
        if (dice_.chance(0.1)) flags |= wire_flag::checked;
        bytes_of all(kind == message_kind::verdict ? verdict_bytes : reply_bytes);
        if (kind == message_kind::verdict) {
            write_verdict(all.data(), what, procedure_id("f", signature_text<int(int)>()), flags);
        } else {
            write_reply(all.data(), what, flags, kind);
        }
        append(all, more);
        append(all, good ? values() : noise(dice_.below(dice_.chance(0.9) ? 60 : 9000)));
        if ((flags & wire_flag::checked) != 0) add_checksum(all);
        return all;
    }
    static bytes_of cancel() {
        bytes_of all(cancel_bytes);
        write_cancel(all.data());
        return all;
    }
    bytes_of credit() {
        bytes_of all(credit_bytes);
        write_credit(all.data(),
                     static_cast<std::uint32_t>(dice_.chance(0.7) ? dice_.below(50) : number()));
        return all;
    }
    bytes_of release() {
        bytes_of all(release_bytes);
        write_release(all.data());
        for (std::uint64_t i = dice_.below(6); i > 0; --i)
            append_number(all, some_loan());
        return all;
    }

    // ---- one-sided transfers, introductions, connections

    void move_bytes() {
        struct moving final : completion {
            moving()
                : completion([](completion& c, status, std::size_t) noexcept {
                      delete static_cast<moving*>(&c);
                  }) {}
            bytes_of bytes;
            mutable_bytes into;
            const_bytes from;
        };
        auto* const one = new moving;
        one->bytes = noise(dice_.below(dice_.chance(0.8) ? 5'000 : 2 * large_bytes));
        one->into = one->bytes;
        one->from = one->bytes;
        const remote_key key = some_key();
        const std::uint64_t at = dice_.chance(0.7) ? dice_.below(2 * large_bytes) : number();
        const posted how = dice_.chance(0.5)
                               ? line_->post_get(there_, scatter(&one->into, 1), key, at, *one)
                               : line_->post_put(there_, gather(&one->from, 1), key, at, *one);
        if (how != posted::pending) delete one;
    }
    bytes_of introduction_bytes() {
        bytes_of made;
        append_number(made, dice_.chance(0.7) ? homes_ : dice_());
        append_number(made, static_cast<std::uint16_t>(dice_()));
        append_number(made, static_cast<std::uint32_t>(dice_.below(4)));
        append_number(made, dice_.chance(0.5) ? 0 : !ticket_ ? dice_() : ticket_);
        append_number(made, dice_());
        return made;
    }
    void introduce() {
        bytes_of all(request_bytes);
        write_request(all.data(),
                      {.procedure = procedure_id("amalgam.introduce",
                                                 signature_text<introduction(introduction)>())});
        append(all, introduction_bytes());
        send_to(there_, ++asks_, std::move(all));
    }
    void meet_again() { line_->close(there_); }
    void find_key(const_bytes body) {
        constexpr std::size_t introduction_bytes = 8 + 2 + 4 + 8 + 8;
        if (body.size() == introduction_bytes) ticket_ = load_le<std::uint64_t>(body.data() + 14);
        constexpr std::size_t head = 8 + 6 * 8;
        if (body.size() < head + 24 || body[0] != std::byte{0x12}) return;
        remote_key key;
        key.bytes = load_le<std::uint64_t>(body.data() + 24);
        key.secret = load_le<std::uint64_t>(body.data() + head);
        key.region = load_le<std::uint64_t>(body.data() + head + 8);
        key.incarnation = load_le<std::uint64_t>(body.data() + head + 16);
        key.rights = access::read_write;
        remember(keys_, key);
    }

    seeded_random dice_;
    std::unique_ptr<port> line_;
    bytes_of memory_;
    region shown_;
    peer_id there_;
    bool meets_again_ = false;
    std::uint64_t homes_ = 4711;
    std::uint64_t ticket_ = 0;
    std::uint64_t asks_ = 0;
    std::vector<std::uint64_t> asked_;  // Ids of the victim's calls.
    std::vector<std::uint64_t> streams_;
    std::vector<std::uint64_t> lent_;
    std::vector<remote_key> keys_;
    std::vector<peer_id> who_;  // The victim, as the caller.
};

// ---- calls by the victim to the liar

void ask_liar(engine& victim, const std::string& address, seeded_random& dice,
              std::vector<future<void>>& all) {
    const peer to = victim.lookup(address);
    const std::uint64_t which = dice.below(10);
    all.push_back(victim.spawn([&victim, to, which] {
        try {
            switch (which) {
                case 0:
                    victim.procedure<int(int)>("f").on(to)(1);
                    break;
                case 1:
                    victim.procedure<std::string(std::string)>("f").on(to)(
                        std::string(large_bytes, 'v'));
                    break;
                case 2: {
                    auto values = victim.procedure<streamed<int>(int)>("f").on(to).window(5)(1);
                    while (values.next())
                        continue;
                    break;
                }
                case 3: {
                    auto values = victim.procedure<streamed<std::string>()>("f").on(to)();
                    while (values.next())
                        continue;
                    break;
                }
                case 4: {
                    const bulk mine = expose_owned(victim, std::string(large_bytes, 'o'));
                    victim.procedure<int(bulk)>("f").on(to)(mine);
                    break;
                }
                case 5: {
                    const bulk given = victim.procedure<bulk()>("f").on(to)();
                    bytes_of into(std::min<std::uint64_t>(given.bytes(), large_bytes));
                    given.pull(into);
                    given.push(into);
                    break;
                }
                case 6: {
                    auto up = victim.procedure<int(streaming<std::string>)>("f").on(to).open();
                    for (int i = 0;
                         i < 20 && up.send(std::string(i % 5 == 4 ? large_bytes : 9, 's')); ++i) {
                    }
                    up.get();
                    break;
                }
                case 7: {
                    auto both = victim.procedure<streamed<int>(streaming<int>)>("f").on(to).open();
                    while (both.send(1) && both.next())
                        continue;
                    break;
                }
                case 8:
                    victim.procedure<void(std::string)>("f").on(to).post(
                        std::string(large_bytes, 'w'));
                    break;
                default:
                    victim.procedure<int(int)>("f").on(to).within(3ms)(1);
            }
        } catch (const error&) {
            // Any outcome the liar causes.
        }
    }));
}

// ---- the judge

class rpc_adversary : public testing::TestWithParam<bool> {
protected:
    void expect_good_client_is_served(engine& client, const std::string& victim, std::size_t size) {
        auto done = client.spawn([&] {
            const peer to = client.lookup(victim);
            EXPECT_EQ(client.procedure<unsigned(unsigned, unsigned)>("sum").on(to)(2, 3), 5u);
            const std::string text(size, 'e');
            EXPECT_EQ(client.procedure<std::string(std::string)>("echo").on(to)(text), text);
            auto numbers = client.procedure<streamed<int>(int)>("count").on(to).window(4)(20);
            int next = 0;
            while (const auto number = numbers.next())
                EXPECT_EQ(*number, next++);
            EXPECT_EQ(next, 20);
            auto up = client.procedure<std::size_t(streaming<std::string>)>("read").on(to).open();
            for (int i = 0; i < 20; ++i)
                EXPECT_TRUE(up.send(text));
            EXPECT_EQ(up.get(), 20 * size);
            bytes_of mine(size, std::byte{1});
            const exposed shown = expose(client, mine, access::read_write);
            EXPECT_EQ(client.procedure<std::size_t(bulk)>("store").on(to)(shown), size);
            client.procedure<void(bulk)>("fill").on(to)(shown);
            EXPECT_EQ(mine, bytes_of(size));
            const bulk given = client.procedure<bulk()>("give").on(to)();
            EXPECT_EQ(given.pull_all(), bytes_of(large_bytes, std::byte{'g'}));
        });
        world_.get(done);
    }
    static std::uint64_t descriptors() {
        std::uint64_t count = 0;
        for ([[maybe_unused]] const auto& each :
             std::filesystem::directory_iterator("/proc/self/fd"))
            ++count;
        return count;
    }
    static std::uint64_t resident_bytes() {
        std::uint64_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages >> pages;
        return pages * 4096;
    }

    world world_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(loop, rpc_adversary, testing::Values(true));
INSTANTIATE_TEST_SUITE_P(tcp, rpc_adversary, testing::Values(false));

/// Whether nothing of a lost peer remains; checked on the engine's stream.
bool is_at_rest(engine& victim, world& in) {
    auto looked = victim.spawn([&victim] {
        engine_core& core = victim.core();
        return core.server().running() == 0 && core.loans().size().value() == 0 &&
               core.loans().borrowed_bytes().value() == 0 && core.value_streams().reserved() == 0 &&
               core.value_streams().open() == 0 && core.caller().pending() == 0 &&
               core.transfers().is_at_rest() && core.outbox().queued() == 0;
    });
    return in.get(looked);
}

TEST_P(rpc_adversary, a_peer_that_lies_harms_nobody_else_and_leaves_nothing_behind) {
    const auto victim = world_.start("victim", bounded());
    const auto client = world_.start("client");
    serve(*victim);
    expect_good_client_is_served(*client, victim->address(), large_bytes);
    const std::uint64_t open = descriptors();
    const std::uint64_t resident = resident_bytes();
    for (const std::uint64_t seed : seeded_runs(GetParam() ? 40 : 15)) {
        seeded_random dice(seed);
        std::vector<future<void>> asked;
        {
            liar one(world_.open("liar" + std::to_string(seed)), victim->address(), dice());
            const std::string address = one.line().address();
            for (std::uint64_t i = 100 + dice.below(600); i > 0; --i) {
                one.step();
                one.come_again(victim->address());
                if (dice.chance(0.05)) ask_liar(*victim, address, dice, asked);
                if (dice.chance(0.3)) world_.move(&one.line());
                if (dice.chance(0.005)) {
                    expect_good_client_is_served(*client, victim->address(),
                                                 1 + dice.below(large_bytes));
                }
                ASSERT_LE(victim->core().loans().borrowed_bytes().value(), 2'000'000u);
            }
        }
        for (future<void>& each : asked)
            world_.get(each);
        world_.move_until([&] { return is_at_rest(*victim, world_); });
        expect_good_client_is_served(*client, victim->address(), large_bytes);
        world_.move_until([&] { return is_at_rest(*victim, world_); });
        ASSERT_EQ(counters_of(*victim)["ports.queued_bytes"], 0u);
        ASSERT_EQ(counters_of(*client)["rpc.peers_lost"], 0u);
        ASSERT_LE(descriptors(), open + 8);
        ASSERT_LE(resident_bytes(), resident + (std::uint64_t{1} << 30));
    }
}

}  // namespace
}  // namespace amalgam::adversary
