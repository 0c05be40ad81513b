#include "link.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include <amalgam/core/bytes.hpp>

#include "forced_unwind.hpp"

namespace ff::detail {

std::uint32_t mark_of(const void* item) {
    return item > FF_TAG_MIN
               ? static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(item) -
                                            reinterpret_cast<std::uintptr_t>(FF_TAG_MIN))
               : 0;
}
void* item_of(std::uint32_t mark) {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(FF_TAG_MIN) + mark);
}

const char* sentence_of_current() {
    try {
        throw;
    } catch (const std::exception& why) {
        return why.what();
    } catch (...) {
        return "an exception of an unknown type";
    }
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

void far_edge::fail(run_base::words why) const {
    run_.fail(why);
    throw run_lost();
}

bool far_edge::knows(std::uint32_t mark) const {
    if (mark == 0) return true;  // An item.
    void* const item = item_of(mark);
    // Others would take them for items.
    if (item == FF_GO_ON || item == FF_GO_OUT) return gathers_ == (item == FF_GO_ON);
    return item >= FF_NBLK && mark <= mark_of(FF_EOS);
}

/// When it sent the last one by their order, its sender had room with all that is here besides.
bool far_edge::within_credit(std::uint64_t batch, const frame& head) {
    const std::uint64_t bytes = head.size + wire::item_overhead;
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

/// Memory of its own, which the program may keep.
std::unique_ptr<message2_t> far_edge::copy_of(const std::byte* bytes, std::size_t count) {
    auto made = std::make_unique<message2_t>();
    made->data = static_cast<char*>(std::malloc(count != 0 ? count : 1));
    if (made->data == nullptr) throw std::bad_alloc();
    made->size = count;
    made->cleanup = true;
    if (count != 0) std::memcpy(made->data, bytes, count);
    return made;
}

void far_edge::will_come(const frame& head) {
    if (head.mark != 0 || !reads_in_place) return;
    announced_ += came_batch::room_of(static_cast<std::size_t>(head.size));
    ++announced_items_;
}

void far_edge::came(const frame& head, const std::byte* bytes) {
    if (head.mark != 0) return came_mark(head.mark);
    const auto count = static_cast<std::size_t>(head.size);
    if (reads_in_place) {
        if (coming_ == nullptr)
            coming_ = came_batch::of(announced_, std::exchange(announced_items_, 0));
        announced_ -= came_batch::room_of(count);
        queue->try_push(coming_->add(bytes, count));
        if (announced_ == 0) coming_.reset();
    } else {
        queue->try_push(copy_of(bytes, count).release());
    }
    // Its sender may be who this node waits for.
    if (feedback_) took(count + wire::item_overhead);
}

void far_edge::came_mark(std::uint32_t mark) {
    void* const item = item_of(mark);
    if (is_end(item)) end_came_ = true;
    if (item == FF_FLUSH) {  // Nobody here takes it: it is not here any more.
        --came_items_;
        came_bytes_ -= wire::item_overhead;
        return give_credit(1, wire::item_overhead);
    }
    queue->try_push(item);
    if (feedback_) took(wire::item_overhead);
}

void far_edge::took(std::uint64_t bytes) {
    bytes_ += bytes;
    if (++items_ < window - window / 2 && bytes_ < usual_bytes / 4) return;
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
    fail({"group ", there.name, " at ", there.address, " has ended, and ", node_name(),
          " waits for an end of the stream that was not sent; return EOS, not GO_OUT, from the "
          "nodes before it"});
}

void* far_edge::read_item(void* came, std::uint64_t& size) {
    struct until_read {
        far_edge& edge;
        void* came;
        ~until_read() { edge.drop(came); }
    } const held{*this, came};
    bool copied = true;
    if (reads_in_place) {
        const came_batch::view found = came_batch::look(came);
        size += found.size;
        if (node->deserializeF.only_reads()) {
            message2_t shown(found.bytes, found.size, false);
            return node->deserializeF(&shown, copied, node);
        }
        // The node has got another function since.
        const auto own = copy_of(reinterpret_cast<const std::byte*>(found.bytes), found.size);
        void* const item = node->deserializeF(own.get(), copied, node);
        if (!copied) own->cleanup = false;
        return item;
    }
    auto& bytes = *static_cast<message2_t*>(came);
    size += bytes.size;
    void* const item = node->deserializeF(&bytes, copied, node);
    if (!copied) bytes.cleanup = false;
    return item;
}

void* far_edge::receive(void* came) {
    if (came == FF_TAG_MIN) return silence();
    std::uint64_t size = wire::item_overhead;
    if (came < FF_TAG_MIN) {
        void* item = nullptr;
        try {
            item = read_item(came, size);
        } catch (const forced_unwind&) {
            throw;
        } catch (...) {
            fail({"cannot read an item that group ", there.name, " sent to ", node_name(), ": ",
                  sentence_of_current()});
        }
        if (item == nullptr || item >= FF_TAG_MIN)
            fail({"the function that reads items of group ", there.name, " for ", node_name(),
                  " returned a ", item == nullptr ? "null pointer" : "mark",
                  ", expected the item"});
        came = item;
    }
    if (!feedback_) took(size);
    return came;
}

void far_edge::drop(void* came) noexcept {
    if (came >= FF_TAG_MIN) return;
    if (reads_in_place)
        came_batch::done(came);
    else
        delete static_cast<message2_t*>(came);
}

void far_edge::give_credit(std::uint64_t items, std::uint64_t bytes) noexcept {
    there.or_fail([&] { run_.calls->credit.on(there.from).post(number, items, bytes); });
}

void far_edge::closed() noexcept {
    if (end_came_ || run_.failed()) return;
    there.or_fail([&] { run_.calls->closed.on(there.from).post(number); });
}

}  // namespace ff::detail
