#include "fabric/transports/shm/pair.hpp"

#include <cerrno>

#include "fabric/limits.hpp"

namespace amalgam::detail {

result<shm_pair> shm_pair::map(int fd, side mine, const origins& from) {
    using layout = shm_pair_layout;
    shm_pair made;
    made.words_ = shm_mapping::of(fd, layout::sides_offset, layout::sides_bytes, true);
    made.to_acceptor_ = shm_mapping::mirrored(fd, layout::ring_to_acceptor, limits::shm_ring_bytes);
    made.to_connector_ =
        shm_mapping::mirrored(fd, layout::ring_to_connector, limits::shm_ring_bytes);
    if (!made.words_ || !made.to_acceptor_ || !made.to_connector_)
        return failure{{errc::no_memory, errno},
                       "shm: out of address space for another connection"};

    if (!reserve_shm_pages(fd, layout::sides_offset, layout::sides_bytes) ||
        !reserve_shm_pages(fd, layout::ring_to_acceptor, layout::bytes - layout::ring_to_acceptor))
        return failure{{errc::no_memory, errno}, "shm: out of memory for another connection"};

    auto* const sides = reinterpret_cast<shm_side*>(made.words_.data());
    shm_side& connector = sides[0];
    shm_side& acceptor = sides[1];
    const shm_ring_place to_acceptor{made.to_acceptor_.data(), shm_ring_lines, from.to_acceptor,
                                     &acceptor.consumed};
    const shm_ring_place to_connector{made.to_connector_.data(), shm_ring_lines, from.to_connector,
                                      &connector.consumed};
    if (mine == side::connector) {
        connector.consumed.store(from.to_connector, std::memory_order_relaxed);
        acceptor.consumed.store(from.to_acceptor, std::memory_order_relaxed);
    }
    const bool connects = mine == side::connector;
    made.mine_ = connects ? &connector : &acceptor;
    made.theirs_ = connects ? &acceptor : &connector;
    made.sender_ = connects ? to_acceptor : to_connector;
    made.receiver_ = connects ? to_connector : to_acceptor;
    return made;
}

}  // namespace amalgam::detail
