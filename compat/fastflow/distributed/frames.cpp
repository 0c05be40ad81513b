#include "frames.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

namespace ff::detail {
namespace {

// Every host is little-endian, as a batch is.
template <typename T>
std::byte* put(std::byte* at, T value) noexcept {
    std::memcpy(at, &value, sizeof value);
    return at + sizeof value;
}
template <typename T>
T get(const std::byte* at) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

}  // namespace

/// Memory of batches that were read, for those that come. New memory would come page by page from
/// the kernel, which takes as long as a copy.
class came_memory {
public:
    ~came_memory() {
        for (came_batch* each : kept_)
            end(each);
    }
    came_batch::holder take(std::size_t bytes) {
        if (bytes >= least)
            if (came_batch* const found = find(bytes)) return came_batch::holder(found);
        void* const memory = std::malloc(sizeof(came_batch) + bytes);
        if (memory == nullptr) throw std::bad_alloc();
        return came_batch::holder(
            ::new (memory) came_batch(static_cast<std::byte*>(memory) + sizeof(came_batch), bytes));
    }
    void give(came_batch* read) noexcept {
        if (read->room_ >= least) {
            const std::lock_guard guard(lock_);
            if (kept_.size() < kept_.capacity() && kept_bytes_ + read->room_ <= most_bytes) {
                kept_.push_back(read);
                kept_bytes_ += read->room_;
                return;
            }
        }
        end(read);
    }
    static came_memory& of_all() {
        static came_memory memory;
        return memory;
    }

private:
    came_memory() { kept_.reserve(256); }
    came_batch* find(std::size_t bytes) {
        const std::lock_guard guard(lock_);
        for (auto at = kept_.rbegin(); at != kept_.rend(); ++at) {
            came_batch* const found = *at;
            if (found->room_ < bytes || found->room_ / 4 > bytes) continue;
            kept_.erase(std::next(at).base());
            kept_bytes_ -= found->room_;
            return found;
        }
        return nullptr;
    }
    static void end(came_batch* one) noexcept {
        one->~came_batch();
        std::free(one);
    }
    static constexpr std::size_t least = 4096;  // Less is not kept: malloc() keeps it.
    static constexpr std::size_t most_bytes = std::size_t{8} << 20;

    std::mutex lock_;
    std::vector<came_batch*> kept_;
    std::size_t kept_bytes_ = 0;
};

frame frame::read(const std::byte* at) {
    return {get<std::uint32_t>(at), get<std::uint32_t>(at + 4), get<std::uint64_t>(at + 8)};
}
void frame::write(std::byte* at) const {
    put(put(put(at, edge), mark), size);
}

void open_batch::add(const frame& head, const char* bytes) {
    const auto count = static_cast<std::size_t>(head.size);
    const std::size_t needed = size_ + frame::header_bytes + count;
    if (needed > room_) {
        const std::size_t room = std::max<std::size_t>({needed, 2 * room_, 4096});
        std::unique_ptr<std::byte[]> larger(new std::byte[room]);
        if (size_ != 0) std::memcpy(larger.get(), bytes_.get(), size_);
        bytes_ = std::move(larger);
        room_ = room;
    }
    std::byte* const at = bytes_.get() + size_;
    head.write(at);
    if (count != 0) std::memcpy(at + frame::header_bytes, bytes, count);
    size_ = needed;
    ++items_;
}

came_batch::holder came_batch::of(std::size_t room, std::uint32_t items) {
    holder made = came_memory::of_all().take(room);
    made->begin(items);
    return made;
}

void came_batch::begin(std::uint32_t items) noexcept {
    used_ = 0;
    to_come_ = items;
    users_.store(1 + items, std::memory_order_relaxed);
}

void* came_batch::add(const std::byte* bytes, std::size_t count) noexcept {
    std::byte* const at = items_ + used_;
    came_batch* const self = this;
    static_assert(sizeof self <= 8);
    std::memcpy(at, &self, sizeof self);  // In the place of edge and mark.
    put(at + 8, static_cast<std::uint64_t>(count));
    if (count != 0) std::memcpy(at + frame::header_bytes, bytes, count);
    used_ += room_of(count);
    --to_come_;
    return at;
}

came_batch::view came_batch::look(void* item) noexcept {
    auto* const at = static_cast<std::byte*>(item);
    return {reinterpret_cast<char*>(at + frame::header_bytes),
            static_cast<std::size_t>(get<std::uint64_t>(at + 8))};
}

void came_batch::done(void* item) noexcept {
    came_batch* all = nullptr;
    std::memcpy(&all, item, sizeof all);
    all->let_go(1);
}

void came_batch::let_go(std::uint32_t users) noexcept {
    if (users_.fetch_sub(users, std::memory_order_acq_rel) != users) return;
    came_memory::of_all().give(this);
}

}  // namespace ff::detail
