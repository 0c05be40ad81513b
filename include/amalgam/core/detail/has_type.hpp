#pragma once

namespace amalgam::detail {

/// Whether the class of `object` was compiled with RTTI. If not (-fno-rtti), typeid and
/// dynamic_cast of it read a type that is not there.
template <typename Polymorphic>
bool has_type(const Polymorphic& object) noexcept {
    static_assert(__is_polymorphic(Polymorphic));
    // The Itanium C++ ABI, 2.5.2: a table's type stands before its first function.
    return (*reinterpret_cast<const void* const* const*>(&object))[-1] != nullptr;
}

/// dynamic_cast<Wanted*>(&object); null if its class has no RTTI.
template <typename Wanted, typename Polymorphic>
Wanted* cast_if_typed(Polymorphic& object) noexcept {
    return has_type(object) ? dynamic_cast<Wanted*>(&object) : nullptr;
}

}  // namespace amalgam::detail
