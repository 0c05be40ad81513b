#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "forced_unwind.hpp"
#include "link.hpp"

// The half of a queue whose consumer is in another group.
namespace ff::detail {
namespace {

/// Items of so many bytes are not copied into a batch.
constexpr std::size_t large = 64 << 10;

/// What serializeF gave.
void check(const message2_t& bytes) {
    if (bytes.data != nullptr ? bytes.size <= PTRDIFF_MAX : bytes.size == 0) return;
    throw std::runtime_error("its serializeF gave " + std::to_string(bytes.size) + " bytes" +
                             (bytes.data == nullptr ? " at a null pointer" : "") +
                             ", expected the item's bytes and their number");
}

/// Reads some of the bytes, which are the program's. If they cannot be read, this group ends here,
/// as it does with fewer bytes, which are copied. A transport may drop such a message and go on,
/// and the other group would wait for ever.
void touch(const message2_t& bytes) {
    constexpr std::size_t page = 4096;
    for (std::size_t at = 0; at < bytes.size; at += page)
        static_cast<void>(*static_cast<const volatile char*>(bytes.data + at));
    static_cast<void>(*static_cast<const volatile char*>(bytes.data + bytes.size - 1));
}

}  // namespace

void far_edge::send(void* item) {
    const bool mark = item > FF_TAG_MIN;
    if (closed_.load(std::memory_order_relaxed) || run_.failed()) {
        if (mark) return;
        if (node->freetaskF) node->freetaskF(item);
        if (run_.failed()) throw run_lost();
        return;
    }
    try {
        if (mark)
            send_mark(mark_of(item));
        else
            send_item(item);
    } catch (const run_lost&) {
        throw;
    } catch (const forced_unwind&) {
        throw;
    } catch (...) {
        run_.fail({"cannot send an item of ", node_name(), " to group ", there.name, " at ",
                   there.address, ": ", sentence_of_current()});
        if (!mark) throw run_lost();
    }
    wait_room(mark ? most_bytes : allowed_);
}

/// Before the bytes leave: their credit may be back before append() has returned.
void far_edge::reserve(std::uint64_t bytes) {
    sent_.store(sent_.load(std::memory_order_relaxed) + bytes + wire::item_overhead,
                std::memory_order_release);
}

void far_edge::reserve_item(std::size_t count) {
    const std::uint64_t several = 8 * (std::uint64_t{count} + wire::item_overhead);
    allowed_ = std::clamp(several, usual_bytes, most_bytes);
    reserve(count);
}

bool far_edge::has_room(std::uint64_t most) const {
    return sent_.load(std::memory_order_relaxed) - credited_.load(std::memory_order_acquire) <=
           most;
}

void far_edge::wait_room(std::uint64_t most) {
    if (has_room(most)) return;
    flush();
    std::unique_lock guard(lock_);
    room_.wait(guard, [&] { return has_room(most) || closed_ || run_.failed(); });
}

void far_edge::send_mark(std::uint32_t mark) {
    if (!knows(mark)) throw std::runtime_error("the mark means nothing to the node there");
    reserve(0);
    there.append(number, mark, nullptr, 0, true);
}

void far_edge::append_item(const char* bytes, std::size_t count) {
    // A full window would never be credited while the batch waits.
    there.append(number, 0, bytes, count, feedback_ || queue->full());
}

void far_edge::send_written(void* item, serialize_function::into_archive write) {
    written_->restart();
    write(item, *written_);
    const std::size_t count = written_->size();
    reserve_item(count);
    if (count < large) {
        append_item(written_->data(), count);
    } else {
        auto next = unused_archive();
        auto full = std::exchange(written_, std::move(next));
        there.append_large(number, leave(full), full->data(), count);
    }
    if (node->freetaskF) node->freetaskF(item);
}

void far_edge::send_item(void* item) {
    if (const auto write = node->serializeF.writes()) return send_written(item, write);
    auto bytes = std::make_shared<message2_t>();
    const bool copied = node->serializeF(item, bytes.get());
    const std::size_t count = bytes->size;
    check(*bytes);
    reserve_item(count);
    if (bytes->cleanup && count >= large) {
        touch(*bytes);
        there.append_large(number, bytes, bytes->data, count);
    } else {
        append_item(bytes->data, count);
        if (!copied && !bytes->cleanup && node->freetaskF) node->freetaskF(item);  // Its own bytes.
        bytes->cleanContent();
    }
    if (copied && node->freetaskF) node->freetaskF(item);
}

/// Instead of `written_`, which leaves. In the order in which they were posted.
std::shared_ptr<sendable<output_archive>> far_edge::unused_archive() {
    constexpr std::size_t most_kept = 64;
    if (next_posted_ < posted_.size() && is_back(*posted_[next_posted_])) {
        auto again = std::exchange(posted_[next_posted_], written_);
        next_posted_ = (next_posted_ + 1) % posted_.size();
        return again;
    }
    auto fresh = std::make_shared<sendable<output_archive>>();
    if (posted_.size() < most_kept) posted_.push_back(written_);
    return fresh;
}

void far_edge::flush() {
    there.flush_or_fail();
}

void far_edge::credited(std::uint64_t items, std::uint64_t bytes) {
    bool sent = items <= queue->sent() - queue->taken();
    {
        const std::lock_guard guard(lock_);
        const std::uint64_t before = credited_.load(std::memory_order_relaxed);
        sent = sent && bytes <= sent_.load(std::memory_order_acquire) - before;
        if (sent) credited_.store(before + bytes, std::memory_order_release);
        room_.notify_all();
    }
    if (!sent)
        return run_.fail({"group ", there.name, " at ", there.address,
                          " gave back room for more items than were sent to it"});
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

}  // namespace ff::detail
