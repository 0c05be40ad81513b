#include "fabric/transports/mpi/inbox.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace amalgam::detail {

mpi_inbox::mpi_inbox(mpi_library& mpi, std::uint16_t number) : mpi_(mpi), number_(number) {
    for (slot& one : ring_)
        one.bytes = std::make_unique<std::byte[]>(mpi_header::max_short_bytes);
    for (slot& one : ring_)
        post(one);
}

mpi_inbox::~mpi_inbox() {
    for (slot& one : ring_) {
        if (one.request == MPI_REQUEST_NULL) continue;
        int is_over = 0;
        {
            const mpi_library::turn turn(mpi_);
            MPI_Cancel(&one.request);
            MPI_Test(&one.request, &is_over, MPI_STATUS_IGNORE);
        }
        if (is_over == 0) mpi_.keep(one.request, one.bytes.release());
    }
    for (arrival& one : under_way_)
        abandon(one);
}

// ---- the ring

void mpi_inbox::post(slot& one) noexcept {
    const mpi_library::turn turn(mpi_);
    if (MPI_Irecv(one.bytes.get(), static_cast<int>(mpi_header::max_short_bytes), MPI_BYTE,
                  MPI_ANY_SOURCE, number_, mpi_.ours(), &one.request) != MPI_SUCCESS)
        one.request = MPI_REQUEST_NULL;
}

/// The next short message, if it has arrived. Its bytes are valid until turn_ring().
bool mpi_inbox::test_ring(int& from, const_bytes& bytes) noexcept {
    slot& one = ring_[head_];
    if (one.request == MPI_REQUEST_NULL) {  // MPI was out of memory.
        post(one);
        if (one.request == MPI_REQUEST_NULL) return false;
    }
    const mpi_library::turn turn(mpi_);
    int is_here = 0;
    MPI_Status about;
    if (MPI_Test(&one.request, &is_here, &about) != MPI_SUCCESS || is_here == 0) return false;
    int count = 0;
    MPI_Get_count(&about, MPI_BYTE, &count);
    from = about.MPI_SOURCE;
    bytes = const_bytes(one.bytes.get(), static_cast<std::size_t>(std::max(count, 0)));
    return true;
}

void mpi_inbox::turn_ring() noexcept {
    post(ring_[head_]);
    head_ = (head_ + 1) % ring_slots;
}

// ---- long messages

/// Whether another message can be received, with memory for it.
bool mpi_inbox::has_room() noexcept try {
    if (under_way_.size() >= max_under_way) return false;
    if (free_.empty()) {
        under_way_.reserve(made_ + 1);
        free_.reserve(made_ + 1);
        free_.emplace_back(new std::byte[mpi_header::max_bytes]);
        ++made_;
    }
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

void mpi_inbox::begin_long(int from, std::uint64_t count) noexcept {
    arrival next;
    next.from = from;
    next.bytes = std::move(free_.back());
    free_.pop_back();
    // A longer one is not a packet of ours; the part that fits will make no sense.
    next.count = std::min<std::size_t>(count, mpi_header::max_bytes);
    {
        const mpi_library::turn turn(mpi_);
        if (MPI_Irecv(next.bytes.get(), static_cast<int>(next.count), MPI_BYTE, from,
                      number_ + mpi_header::long_tags, mpi_.ours(), &next.request) != MPI_SUCCESS)
            next.count = 0;
    }
    under_way_.push_back(std::move(next));
}

void mpi_inbox::keep_short(int from, const_bytes bytes) noexcept {
    arrival next;
    next.from = from;
    next.is_here = true;
    next.count = bytes.size();
    next.bytes = std::move(free_.back());
    free_.pop_back();
    std::memcpy(next.bytes.get(), bytes.data(), bytes.size());
    under_way_.push_back(std::move(next));
}

bool mpi_inbox::has_come(arrival& one) noexcept {
    if (one.is_here) return true;
    const mpi_library::turn turn(mpi_);
    int is_here = 0;
    if (MPI_Test(&one.request, &is_here, MPI_STATUS_IGNORE) != MPI_SUCCESS) one.count = 0;
    one.is_here = is_here != 0;
    return one.is_here;
}

/// Whether one from the same sender among the first `at` has not arrived yet.
bool mpi_inbox::waits_behind_another(int from, std::size_t at) const noexcept {
    for (std::size_t i = 0; i < at; ++i)
        if (under_way_[i].from == from) return true;
    return false;
}

void mpi_inbox::forget(int rank) noexcept {
    for (std::size_t i = 0; i < under_way_.size();) {
        if (under_way_[i].from != rank) {
            ++i;
            continue;
        }
        abandon(under_way_[i]);
        under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

void mpi_inbox::abandon(arrival& one) noexcept {
    if (!has_come(one))
        mpi_.keep(one.request, one.bytes.release());
    else
        free_.push_back(std::move(one.bytes));
}

}  // namespace amalgam::detail
