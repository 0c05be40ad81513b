#include "fabric/transports/mpi/outbox.hpp"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

namespace amalgam::detail {

mpi_outbox::mpi_outbox(mpi_library& mpi) : mpi_(mpi) {
    requests_.reserve(4 * max_packets);
    sent_.reserve(4 * max_packets);
    ended_.resize(4 * max_packets);
    spare_words_.reserve(4 * max_packets);
}

/// False: MPI did not accept it.
bool mpi_outbox::begin(const void* bytes, std::size_t count, int rank, int tag,
                       MPI_Request& request, bool& has_left) noexcept {
    const mpi_library::turn turn(mpi_);
    if (MPI_Isend(bytes, static_cast<int>(count), MPI_BYTE, rank, tag, mpi_.ours(), &request) !=
        MPI_SUCCESS)
        return false;
    int is_over = 0;
    MPI_Test(&request, &is_over, MPI_STATUS_IGNORE);
    has_left = is_over != 0;
    return true;
}

posted mpi_outbox::send(int rank, std::uint16_t port, packet& one) noexcept {
    if (requests_.size() >= max_packets) return posted::full;
    const std::size_t count = one.bytes + mpi_header::wire_bytes;
    const bool is_long = count > mpi_header::max_short_bytes;
    if (is_long) {
        mpi_word coming;
        coming.header.kind = mpi_kind::announcement;
        coming.from = count;
        if (!say(rank, port, coming)) return posted::full;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    bool has_left = false;
    if (!begin(one.data - mpi_header::wire_bytes, count, rank,
               port + (is_long ? mpi_header::long_tags : 0), request, has_left)) {
        if (is_long) failed_rank_ = rank;  // The other end waits for it forever.
        return posted::full;
    }
    if (has_left) return posted::done;
    requests_.push_back(request);
    sent_.push_back({rank, &one, nullptr});
    return posted::pending;
}

bool mpi_outbox::say(int rank, std::uint16_t port, const mpi_word& word) noexcept {
    if (requests_.size() == requests_.capacity()) return false;
    std::unique_ptr<std::byte[]> bytes;
    if (spare_words_.empty()) {
        bytes.reset(new (std::nothrow) std::byte[mpi_word::wire_bytes]);
        if (bytes == nullptr) return false;
    } else {
        bytes = std::move(spare_words_.back());
        spare_words_.pop_back();
    }
    word.encode(bytes.get());
    MPI_Request request = MPI_REQUEST_NULL;
    bool has_left = false;
    const bool begun = begin(bytes.get(), mpi_word::wire_bytes, rank, port, request, has_left);
    if (!begun || has_left) {
        spare_words_.push_back(std::move(bytes));
        return begun;
    }
    requests_.push_back(request);
    sent_.push_back({rank, nullptr, std::move(bytes)});
    return true;
}

void mpi_outbox::remove(std::size_t at) noexcept {
    if (sent_[at].bytes != nullptr) spare_words_.push_back(std::move(sent_[at].bytes));
    requests_[at] = requests_.back();
    requests_.pop_back();
    sent_[at] = std::move(sent_.back());
    sent_.pop_back();
}

std::size_t mpi_outbox::tell(packet_events& events) noexcept {
    if (requests_.empty()) return 0;
    // A slice at a time, as MPI checks every request it is given.
    constexpr std::size_t slice = 16;
    const std::size_t first = next_slice_ < requests_.size() ? next_slice_ : 0;
    const std::size_t some = std::min(slice, requests_.size() - first);
    next_slice_ = first + some;
    int count = 0;
    {
        const mpi_library::turn turn(mpi_);
        MPI_Testsome(static_cast<int>(some), requests_.data() + first, &count, ended_.data(),
                     MPI_STATUSES_IGNORE);
    }
    if (count <= 0) return 0;  // MPI_UNDEFINED is below 0.
    // From the last to the first, so that earlier ones keep their positions.
    std::sort(ended_.begin(), ended_.begin() + count, std::greater<>());
    for (int i = 0; i < count; ++i) {
        const std::size_t at =
            first + static_cast<std::size_t>(ended_[static_cast<std::size_t>(i)]);
        packet* const what = sent_[at].what;
        remove(at);
        if (what != nullptr) events.returned(*what);
    }
    return static_cast<std::size_t>(count);
}

void mpi_outbox::abandon(int rank, packet_events& events) noexcept {
    for (std::size_t i = requests_.size(); i-- > 0;) {
        if (rank >= 0 && sent_[i].to != rank) continue;
        packet* const what = sent_[i].what;
        mpi_.keep(requests_[i], what != nullptr ? static_cast<void*>(what)
                                                : static_cast<void*>(sent_[i].bytes.release()));
        remove(i);
        if (what != nullptr) events.abandoned(*what);
    }
}

}  // namespace amalgam::detail
