#include <cstring>

#include <amalgam/fabric/message.hpp>

namespace amalgam {

buffer message::take() {
    if (owned_ != nullptr) return std::move(*std::exchange(owned_, nullptr));
    buffer copy = pool_.take(bytes_.size());
    if (!bytes_.empty()) std::memcpy(copy.data(), bytes_.data(), bytes_.size());
    return copy;
}

}  // namespace amalgam
