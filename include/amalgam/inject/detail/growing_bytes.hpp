#pragma once

#include <cstddef>
#include <vector>

namespace amalgam::detail {

/// A growing byte buffer for archives to write into, where there is no engine.
class growing_bytes {
public:
    std::byte* extend(std::size_t bytes) {
        all_.resize(all_.size() + bytes);
        return all_.data() + (all_.size() - bytes);
    }
    std::size_t size() const noexcept { return all_.size(); }
    const std::byte* data() const noexcept { return all_.data(); }

private:
    std::vector<std::byte> all_;
};

}  // namespace amalgam::detail
