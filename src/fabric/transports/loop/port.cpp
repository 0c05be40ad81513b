#include "fabric/transports/loop/port.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>

#include "fabric/transports/loop/virtual_hub.hpp"

namespace amalgam::detail {

namespace {
constexpr std::size_t landing_from_bytes = 16384;  // Longer frames land in steps.
constexpr std::size_t landing_step_bytes = 65536;
constexpr std::size_t landing_prefix_bytes = 64;

capabilities capabilities_of(const loop_options& options, bool driven) {
    capabilities can;
    can.transport = "loop";
    can.inline_bytes = options.inline_bytes;
    can.max_message_bytes = options.max_message_bytes;
    can.eager_bytes = 65536;
    can.listens = true;
    can.between_processes = false;
    can.driven = driven;
    return can;
}
}  // namespace

loop_port::loop_port(std::shared_ptr<loop_hub> hub, std::shared_ptr<loop_mailbox> box,
                     const port_options& options, std::uint64_t incarnation, bool driven)
    : framed_port(options, capabilities_of(hub->options, driven),
                  incarnation != 0 ? incarnation : random_nonzero_u64()),
      hub_(std::move(hub)),
      box_(std::move(box)) {
    inbox_.reserve(16);  // Minimum: reporting the end of a connection must not need memory.
    hub_->attach(*this);
}

loop_port::~loop_port() {
    end_everything();
    hub_->detach(*this);
    hub_->close(*box_);
    while (over_ != nullptr)
        (void)take_over(over_);
}

std::string loop_port::address() const {
    return "loop://" + box_->name();
}

std::string loop_port::explain() const {
    return fmt::format(
        "loop, as the scheme says: ports within this process, {}. Messages are copied once, into a "
        "buffer of the receiver; put and get are carried as messages.",
        can().driven ? "in virtual time" : "each usable from its own thread");
}

identity loop_port::self() const {
    const loop_station* const here = box_->station;
    return here == nullptr || here->as == nullptr ? identity{} : *here->as;
}

result<std::string> loop_port::canonical(std::string_view address) const noexcept try {
    result<uri> parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    if (parsed->scheme != "loop")
        return {errc::unsupported,
                fmt::format("\"{}\" is not an address that a loop port reaches: expected the "
                            "scheme \"loop\", not \"{}\"; example: loop://server",
                            address, parsed->scheme)};
    return "loop://" + parsed->name;
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

result<frame_link*> loop_port::connect(std::string_view address) noexcept try {
    const std::string name = parse_uri(address).value().name;
    auto on = std::make_shared<loop_connection>();
    loop_link& link = add_link(on, 0);
    on->sides[0].box = box_;
    on->sides[1].silence_limit = silence_limit();
    std::shared_ptr<loop_mailbox> target = dead_ ? nullptr : hub_->find(name);

    loop_item first;
    first.on = on;
    if (target != nullptr && hub_->next_operation() == loop_hub::fate::good) {
        on->sides[1].box = std::move(target);
        first.what = loop_item::kind::connect;
        first.to = 1;
    } else {
        first.what = loop_item::kind::reset;
        first.to = 0;
        first.why = {errc::unreachable};
    }
    hub_->carry(std::move(first));
    return &link;
} catch (const std::bad_alloc&) {
    return {errc::no_memory, ""};
}

loop_link& loop_port::add_link(std::shared_ptr<loop_connection> on, std::uint8_t side) {
    auto link = std::make_unique<loop_link>(*this, std::move(on), side);
    resumed_.reserve(links_.size() + 1);  // So that resume() never allocates.
    links_.push_back(std::move(link));
    loop_link& added = *links_.back();
    added.index = links_.size() - 1;
    added.own().link = &added;
    added.own().silence_limit = silence_limit();
    return added;
}

void loop_port::release(frame_link& gone) noexcept {
    auto& link = static_cast<loop_link&>(gone);
    std::erase(resumed_, &link);
    std::swap(links_[link.index], links_.back());
    links_[link.index]->index = link.index;
    links_.pop_back();
}

void loop_port::resume(frame_link& which) noexcept {
    auto& link = static_cast<loop_link&>(which);
    link.paused = false;
    if (link.held.empty()) return;
    if (std::find(resumed_.begin(), resumed_.end(), &link) == resumed_.end())
        resumed_.push_back(&link);
    hub_->wake(*this);
}

bool loop_port::has_work() const noexcept {
    return has_due() || next_ < inbox_.size() || over_ != nullptr || !resumed_.empty() ||
           !box_->empty();
}

bool loop_port::arm() noexcept {
    if (next_ < inbox_.size() || over_ != nullptr || !resumed_.empty() || !box_->arm())
        return false;
    armed_ = true;
    return true;
}

std::size_t loop_port::move_frames(std::size_t budget) noexcept {
    if (std::exchange(armed_, false)) box_->disarm();
    std::size_t ran = resumed_.empty() ? 0 : read_held(budget);
    while (ran < budget && next_item()) {
        ++ran;
        if (handle(inbox_[next_])) {
            inbox_[next_] = loop_item{};
            ++next_;
        }
    }
    return ran;
}

bool loop_port::next_item() noexcept {
    if (next_ < inbox_.size()) return true;
    inbox_.clear();
    next_ = 0;
    if (over_ == nullptr) {
        hub_->catch_up();
        box_->take(inbox_, over_);
    }
    if (!inbox_.empty()) return true;
    if (over_ == nullptr) return false;
    inbox_.push_back(take_over(over_));  // Capacity: see the constructor.
    return true;
}

std::size_t loop_port::read_held(std::size_t budget) noexcept {
    std::size_t ran = 0;
    while (ran < budget && !resumed_.empty()) {
        loop_link& link = *resumed_.front();
        if (link.paused || link.held.empty() || link.own().link == nullptr) {
            resumed_.erase(resumed_.begin());
            continue;
        }
        ++ran;
        if (read(link, link.held.front())) link.held.pop_front();
    }
    return ran;
}

// True if the item is finished.
bool loop_port::handle(loop_item& item) noexcept {
    if (item.what == loop_item::kind::connect) {
        accept(item);
        return true;
    }
    loop_link* link = item.on->sides[item.to].link;
    if (link == nullptr) return true;  // The link has ended here.
    switch (item.what) {
        case loop_item::kind::frame:
            if (!link->paused && link->held.empty()) return read(*link, item);
            try {
                link->held.push_back(std::move(item));
            } catch (const std::bad_alloc&) {
                link->shut();
                link_down(*link, {errc::no_memory});
            }
            return true;
        case loop_item::kind::writable:
            writable(*link);
            return true;
        case loop_item::kind::sent:
            if (item.on_sent != nullptr) sent(*item.on_sent, {});
            return true;
        default:
            end_link(*link, item.why);
            return true;
    }
}

void loop_port::accept(loop_item& item) noexcept try {
    std::string address = "loop://" + item.on->sides[0].box->name();
    loop_link& link = add_link(item.on, 1);
    if (dead_ || !accepted(link, std::move(address))) {
        link.shut({errc::unreachable});
        release(link);
    }
} catch (const std::bad_alloc&) {
    hub_->break_now(item.on, {errc::no_memory});
}

void loop_port::end_link(loop_link& link, status why) noexcept {
    link.own().link = nullptr;
    hub_->shut(*link.on(), link.side());
    link_down(link, why);
}

// True if the whole frame has been read.
bool loop_port::read(loop_link& link, loop_item& item) noexcept {
    delivery what = delivery::taken;
    if (item.header.bytes <= landing_from_bytes) {
        const const_bytes payload = std::as_const(item.bytes).bytes();
        what = deliver(link, item.header, payload);
    } else if (!land(link, item, what)) {
        return false;
    }
    obey(link, what);
    if (what == delivery::gone || what == delivery::malformed) return true;

    std::atomic<std::size_t>& unread = link.other().unread;
    const std::size_t room = room_of(item);
    const std::size_t left = unread.fetch_sub(room) - room;
    // Only once half is free, so that a sender does not stop and start for every frame.
    if (left <= hub_->options.link_bytes / 2 && link.other().wants_room.load() &&
        link.other().wants_room.exchange(false)) {
        loop_item news;
        news.what = loop_item::kind::writable;
        news.to = static_cast<std::uint8_t>(1 - link.side());
        news.on = link.on();
        hub_->carry(std::move(news));
    }
    return true;
}

bool loop_port::land(loop_link& link, const loop_item& item, delivery& what) noexcept {
    const const_bytes payload = item.bytes.bytes();
    if (link.open == nullptr) {
        link.open = begin_placement(link, item.header, payload.first(landing_prefix_bytes));
        if (link.open == nullptr) {
            what = delivery::malformed;
            return true;
        }
        link.landed = landing_prefix_bytes;
        link.at = {};
    }
    const std::size_t step = std::min(landing_step_bytes, payload.size() - link.landed);
    if (!link.open->discard) copy_in(link.open->into, link.at, payload.subspan(link.landed, step));
    link.landed += step;
    if (link.landed < payload.size()) return false;
    link.open = nullptr;
    what = end_placement(link);
    return true;
}

void loop_port::obey(loop_link& link, delivery what) noexcept {
    if (what == delivery::pause) link.paused = true;
    if (what != delivery::malformed) return;
    link.shut();
    link_down(link, {errc::disconnected});
}

void loop_port::forget_sent(const completion& on_sent) noexcept {
    for (std::size_t i = next_; i < inbox_.size(); ++i)
        if (inbox_[i].on_sent == &on_sent) inbox_[i].on_sent = nullptr;
    box_->forget_sent(on_sent);
}

void loop_port::kill() noexcept {
    dead_ = true;
    hub_->retire(*box_);
    for (const auto& link : links_) {
        if (link->own().link == nullptr) continue;
        link->shut();
        link_down(*link, {errc::disconnected});
    }
}

bool loop_link::has_room(std::size_t bytes) const noexcept {
    const std::size_t unread = own().unread.load();
    return unread == 0 || unread + bytes <= port_.hub().options.link_bytes;
}

posted loop_link::send(const frame_header& header, gather payload, completion* on_sent) noexcept {
    if (own().link == nullptr) return posted::full;
    // The far side does not exist: the send waits for that to be reported.
    if (other().box == nullptr) return on_sent != nullptr ? posted::pending : posted::done;
    loop_item item;
    item.what = loop_item::kind::frame;
    item.to = static_cast<std::uint8_t>(1 - side_);
    item.on = on_;
    item.header = header;
    const std::size_t room = room_of(item);

    // Set the flag before checking again: a reader that frees room meanwhile either shows it to
    // this check or sees the flag. Both sides are sequentially consistent, as they access different
    // words.
    if (!has_room(room)) {
        own().wants_room.store(true);
        if (!has_room(room)) return posted::full;
    }
    switch (port_.hub().next_operation()) {
        case loop_hub::fate::good:
            break;
        case loop_hub::fate::reset:
            port_.hub().break_now(on_, {errc::disconnected});
            port_.end_link(*this, {errc::disconnected});
            return posted::full;
        case loop_hub::fate::full: {
            loop_item again;
            again.what = loop_item::kind::writable;
            again.to = side_;
            again.on = on_;
            port_.hub().carry(std::move(again));
            return posted::full;
        }
    }
    posted how = posted::done;
    if (on_sent != nullptr && port_.hub().lends(header.bytes)) {
        item.lent = payload;
        item.on_sent = on_sent;
        how = posted::pending;
    } else if (header.bytes > 0) {
        item.bytes = port_.pool().try_take(header.bytes);
        if (item.bytes.size() != header.bytes) {
            port_.hub().break_now(on_, {errc::disconnected});
            port_.end_link(*this, {errc::no_memory});
            return posted::full;
        }
        copy_out(payload, item.bytes.data());
    }
    own().unread.fetch_add(room);
    port_.hub().carry(std::move(item));
    return how;
}

bool loop_link::forget(completion& on_sent) noexcept {
    if (other().box == nullptr) return true;
    return port_.hub().forget(*on_, static_cast<std::uint8_t>(1 - side_), on_sent);
}

void loop_link::detach(completion& on_sent) noexcept {
    if (other().box == nullptr) return;
    port_.hub().detach(*on_, static_cast<std::uint8_t>(1 - side_), on_sent);
    port_.forget_sent(on_sent);
}

identity loop_link::who() const {
    const loop_mailbox* const box = other().box.get();
    const loop_station* const there = box == nullptr ? nullptr : box->station;
    return there == nullptr || there->as == nullptr ? own_process() : *there->as;
}

void loop_link::shut() noexcept {
    shut({errc::disconnected});
}

void loop_link::shut(status why) noexcept {
    if (own().link == nullptr) return;
    own().link = nullptr;
    port_.hub().shut(*on_, side_);
    loop_item reset;
    reset.what = loop_item::kind::reset;
    reset.to = static_cast<std::uint8_t>(1 - side_);
    reset.on = on_;
    reset.why = why;
    if (other().box != nullptr) port_.hub().carry(std::move(reset));
}

}  // namespace amalgam::detail
