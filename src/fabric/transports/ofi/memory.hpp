#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/fabric/one_sided.hpp>

#include "fabric/transports/ofi/library.hpp"

namespace amalgam::detail {

/// Opens a segment of a peer's region.
struct ofi_far_key {
    std::uint64_t base = 0;  ///< Of the segment's first byte.
    std::uint64_t key = 0;
    bool is_mapped = false;  ///< Made from a raw key.
};

/// Memory that is registered with libfabric, as the domain's mr_mode asks, and keys to a peer's.
///
/// A key travels as: 1 byte, 1 for a number and 2 for raw bytes; 7 bytes 0; the base, 8 bytes; the
/// key, 8 bytes or the raw ones.
///
/// Threads: the port's thread.
class ofi_memory {
public:
    /// `local`: our own operations need registered memory even if mr_mode does not ask for it.
    ofi_memory(fid_domain* domain, const fi_info& info, bool local) noexcept;
    /// Precondition: all registrations were removed.
    ~ofi_memory();
    ofi_memory(const ofi_memory&) = delete;

    /// Endpoint that registrations belong to, with FI_MR_ENDPOINT.
    void bind_to(fid_ep* end) noexcept { end_ = end; }
    /// Whether our own operations need registered memory.
    bool registers_local() const noexcept { return local_; }

    /// For our own operations. Failure: libfabric's, among them `no_memory`.
    result<fid_mr*> add_local(mutable_bytes) noexcept;
    /// For peers that know the key. Failure: as above; also at the number that the domain allows.
    result<fid_mr*> expose(mutable_bytes, access) noexcept;
    /// Ends all access by it.
    void remove(fid_mr*) noexcept;

    /// Writes the key; returns its length.
    result<std::size_t> tell(
        fid_mr&, const std::byte* first,
        std::span<std::byte, one_sided_carrier::max_key_bytes> told) const noexcept;
    result<ofi_far_key> open(const_bytes told) noexcept;
    void close(const ofi_far_key&) noexcept;

private:
    static constexpr std::size_t head_bytes = 16;

    bool asks_for(std::uint64_t mode) const noexcept { return (modes_ & mode) != 0; }
    result<fid_mr*> add(mutable_bytes, std::uint64_t rights) noexcept;
    int register_once(mutable_bytes, std::uint64_t rights, fid_mr*& made) noexcept;
    int make_ready(fid_mr& one, mutable_bytes) noexcept;

    fid_domain* domain_;
    fid_ep* end_ = nullptr;
    std::uint64_t modes_ = 0;
    std::uint64_t key_mask_ = ~std::uint64_t{0};  ///< Of keys that we choose.
    std::size_t most_ = 0;                        ///< Registrations; 0: no limit known.
    std::size_t count_ = 0;
    bool local_ = false;
};

}  // namespace amalgam::detail
