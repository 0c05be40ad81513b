#include "link.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include <cxxabi.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/procedure.hpp>

namespace ff::detail {
namespace {

template <typename T>
void put(std::byte*& at, T value) {
    for (std::size_t i = 0; i != sizeof value; ++i)
        *at++ = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t mark_of(const void* item) {
    return item > FF_TAG_MIN
               ? static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(item) -
                                            reinterpret_cast<std::uintptr_t>(FF_TAG_MIN))
               : 0;
}
void* item_of(std::uint32_t mark) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(FF_TAG_MIN) + mark);
}

/// Items of so many bytes are not copied into a batch.
constexpr std::size_t large = 64 << 10;

/// Of the exception that is being handled.
std::string sentence_of_current() {
    try {
        throw;
    } catch (const std::exception& why) {
        return why.what();
    } catch (...) {
        return "an exception of an unknown type";
    }
}

/// What serializeF gave.
void check(const message2_t& bytes) {
    if (bytes.data != nullptr ? bytes.size <= PTRDIFF_MAX : bytes.size == 0) return;
    throw std::runtime_error("its serializeF gave " + std::to_string(bytes.size) + " bytes" +
                             (bytes.data == nullptr ? " at a null pointer" : "") +
                             ", expected the item's bytes and their number");
}

}  // namespace

void far_group::append(std::uint32_t edge, std::uint32_t mark, const char* bytes, std::size_t count,
                       bool last) {
    const std::lock_guard guard(lock_);
    const std::size_t before = open_.size();
    open_.resize(before + wire::header_bytes + count);
    std::byte* at = open_.data() + before;
    put(at, edge);
    put(at, mark);
    put(at, static_cast<std::uint64_t>(count));
    if (count != 0) std::memcpy(at, bytes, count);
    ++open_items_;
    if (last || open_items_ >= mine_.batch_size || open_.size() >= mine_.batch_bytes) send_open();
}

void far_group::send_open() {
    if (open_items_ == 0) return;
    const auto batch = run_.over->procedure<wire::batch>("ff.batch");
    batch.on(to).post(number_, amalgam::const_bytes(open_.data(), open_.size()));
    ++number_;
    open_.clear();
    open_items_ = 0;
}

void far_group::append_large(std::uint32_t edge, std::shared_ptr<message2_t> item) {
    const std::lock_guard guard(lock_);
    send_open();
    const auto alone = run_.over->procedure<wire::item>("ff.item");
    const amalgam::const_bytes bytes(reinterpret_cast<const std::byte*>(item->data), item->size);
    alone.on(to).post_held(item, number_, edge, bytes);
    ++number_;
}

void far_group::flush() {
    const std::lock_guard guard(lock_);
    send_open();
}

void far_group::flush_old() {
    const std::lock_guard guard(lock_);
    if (open_items_ != 0 && seen_ == number_) send_open();
    seen_ = number_;
}

far_edge::far_edge(run_base& run, std::uint32_t of_number, const edge& between, far_group& group,
                   bool is_out)
    : number(of_number),
      there(group),
      out(is_out),
      queue(between.queue),
      run_(run),
      end_(is_out ? between.from : between.to),
      gathers_(between.to->how == runner::kind::gather),
      feedback_(between.feedback) {}

std::string far_edge::node_name() const {
    return "node " + std::to_string(end_->node != nullptr ? end_->node->get_my_id() : -1);
}

void far_edge::fail(const std::string& why) const {
    run_.fail(why);
    throw run_lost();
}

void far_edge::send(void* item) {
    const bool mark = item > FF_TAG_MIN;
    bool gone = false;
    {
        const std::lock_guard guard(lock_);
        gone = closed_;
    }
    if (gone || run_.failed()) {
        if (mark) return;
        if (node->freetaskF) node->freetaskF(item);
        if (run_.failed()) throw run_lost();
        return;
    }
    bool room = true;
    try {
        room = mark ? send_mark(mark_of(item)) : send_item(item);
    } catch (const run_lost&) {
        throw;
    } catch (const abi::__forced_unwind&) {
        throw;
    } catch (...) {
        run_.fail("cannot send an item of " + node_name() + " to group " + there.name + " at " +
                  there.address + ": " + sentence_of_current());
        if (!mark) throw run_lost();
    }
    if (!room) wait_room();
}

/// Before the bytes leave: their credit may be back before append() has returned. False: what
/// comes next waits for room.
bool far_edge::reserve(std::uint64_t bytes) {
    const std::lock_guard guard(lock_);
    in_flight_ += bytes + wire::item_overhead;
    return in_flight_ <= most_bytes;
}

void far_edge::wait_room() {
    flush();
    std::unique_lock guard(lock_);
    room_.wait(guard, [this] { return in_flight_ <= most_bytes || closed_ || run_.failed(); });
}

bool far_edge::send_mark(std::uint32_t mark) {
    if (!knows(mark)) throw std::runtime_error("the mark means nothing to the node there");
    const bool room = reserve(0);
    there.append(number, mark, nullptr, 0, true);
    return room;
}

bool far_edge::send_item(void* item) {
    auto bytes = std::make_shared<message2_t>();
    const bool copied = node->serializeF(item, bytes.get());
    const std::size_t count = bytes->size;
    check(*bytes);
    const bool room = reserve(count);
    if (bytes->cleanup && count >= large) {
        there.append_large(number, std::move(bytes));
    } else {
        // A full window would never be credited while the batch waits.
        there.append(number, 0, bytes->data, count, feedback_ || queue->full());
        if (!copied && !bytes->cleanup && node->freetaskF) node->freetaskF(item);  // Its own bytes.
        bytes->cleanContent();
    }
    if (copied && node->freetaskF) node->freetaskF(item);
    return room;
}

void far_edge::flush() {
    try {
        there.flush();
    } catch (const std::exception&) {  // Told with the group's loss.
    }
}

void far_edge::credited(std::uint64_t items, std::uint64_t bytes) {
    bool sent = items <= queue->sent() - queue->taken();
    {
        const std::lock_guard guard(lock_);
        sent = sent && bytes <= in_flight_;
        if (sent) in_flight_ -= bytes;
        room_.notify_all();
    }
    if (!sent)
        return run_.fail("group " + there.name + " at " + there.address +
                         " gave back room for more items than were sent to it");
    queue->credit(items);
}

void far_edge::close() {
    {
        const std::lock_guard guard(lock_);
        closed_ = true;
        room_.notify_all();
    }
    queue->close();
}

bool far_edge::knows(std::uint32_t mark) const {
    if (mark == 0) return true;  // An item.
    void* const item = item_of(mark);
    // Others would take them for items.
    if (item == FF_GO_ON || item == FF_GO_OUT) return gathers_ == (item == FF_GO_ON);
    return item >= FF_NBLK && mark <= mark_of(FF_EOS);
}

/// When it sent the last one by their order, its sender had room with all that is here besides.
bool far_edge::within_credit(std::uint64_t batch, std::uint32_t mark, std::size_t count) {
    if (mark == mark_of(FF_FLUSH)) return true;  // Is not kept.
    const std::uint64_t bytes = count + wire::item_overhead;
    const std::uint64_t items_here = came_items_ - credited_items_.load(std::memory_order_acquire);
    const std::uint64_t bytes_here = came_bytes_ - credited_bytes_.load(std::memory_order_acquire);
    const bool last = batch >= last_batch_;
    if (items_here >= window || bytes_here + (last ? 0 : bytes - last_bytes_) > most_bytes)
        return false;
    ++came_items_;
    came_bytes_ += bytes;
    if (last) {
        last_batch_ = batch;
        last_bytes_ = bytes;
    }
    return true;
}

void far_edge::came(std::uint32_t mark, const std::byte* bytes, std::size_t count) {
    if (mark != 0) {
        void* const item = item_of(mark);
        if (is_end(item)) end_came_ = true;
        if (item == FF_FLUSH) return give_credit(1, wire::item_overhead);
        queue->try_push(item);
        if (feedback_) took(wire::item_overhead);
        return;
    }
    auto made = std::make_unique<message2_t>();
    made->data = static_cast<char*>(std::malloc(count != 0 ? count : 1));
    if (made->data == nullptr) throw std::bad_alloc();
    made->size = count;
    made->cleanup = true;
    if (count != 0) std::memcpy(made->data, bytes, count);
    queue->try_push(made.release());
    // Its sender may be who this node waits for.
    if (feedback_) took(count + wire::item_overhead);
}

void far_edge::took(std::uint64_t bytes) {
    bytes_ += bytes;
    if (++items_ < window - window / 2 && bytes_ < most_bytes / 4) return;
    // Before the sender can know.
    credited_items_.store(credited_items_.load(std::memory_order_relaxed) + items_,
                          std::memory_order_release);
    credited_bytes_.store(credited_bytes_.load(std::memory_order_relaxed) + bytes_,
                          std::memory_order_release);
    give_credit(std::exchange(items_, 0), std::exchange(bytes_, 0));
}

void far_edge::over() {
    if (!end_came_) queue->try_push(FF_TAG_MIN);
}

void* far_edge::silence() {
    for (inlet::input& each : end_->in.inputs)
        if (each.queue == queue) each.silent = true;
    end_->in.check_silent();
    return FF_BLK;
}

void far_edge::deserted() {
    fail("group " + there.name + " at " + there.address + " has ended, and " + node_name() +
         " waits for an end of the stream that was not sent; return EOS, not GO_OUT, from the "
         "nodes before it");
}

void* far_edge::receive(void* came) {
    if (came == FF_TAG_MIN) return silence();
    std::uint64_t size = wire::item_overhead;
    if (came < FF_TAG_MIN) {
        const std::unique_ptr<message2_t> bytes(static_cast<message2_t*>(came));
        size += bytes->size;
        void* item = nullptr;
        try {
            bool copied = true;
            item = node->deserializeF(bytes.get(), copied, node);
            if (!copied) bytes->cleanup = false;
        } catch (const abi::__forced_unwind&) {
            throw;
        } catch (...) {
            fail("cannot read an item that group " + there.name + " sent to " + node_name() + ": " +
                 sentence_of_current());
        }
        if (item == nullptr || item >= FF_TAG_MIN)
            fail("the function that reads items of group " + there.name + " for " + node_name() +
                 " returned a " + (item == nullptr ? "null pointer" : "mark") +
                 ", expected the item");
        came = item;
    }
    if (!feedback_) took(size);
    return came;
}

void far_edge::drop(void* came) noexcept {
    if (came < FF_TAG_MIN) delete static_cast<message2_t*>(came);
}

void far_edge::give_credit(std::uint64_t items, std::uint64_t bytes) noexcept {
    try {
        run_.over->procedure<wire::credit>("ff.credit").on(there.from).post(number, items, bytes);
    } catch (const std::exception&) {  // Gone: told elsewhere if too early.
    }
}

void far_edge::closed() noexcept {
    if (end_came_ || run_.failed()) return;
    try {
        run_.over->procedure<wire::closed>("ff.closed").on(there.from).post(number);
    } catch (const std::exception&) {
    }
}

}  // namespace ff::detail
