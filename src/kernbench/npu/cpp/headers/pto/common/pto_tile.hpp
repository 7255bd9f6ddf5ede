// Tiles, and tensors in device memory: what they are, no values. A tile knows where it lies, a tensor its address.
#pragma once

#include <limits>
#include <type_traits>

#include "pto/common/type.hpp"

namespace kb {

// five sizes, of which some are known only when the program runs
template <int64_t A, int64_t B, int64_t C, int64_t D, int64_t E> struct Sizes {
    static constexpr int64_t known[5] = {A, B, C, D, E};
    int64_t now[5] = {A < 0 ? 1 : A, B < 0 ? 1 : B, C < 0 ? 1 : C, D < 0 ? 1 : D, E < 0 ? 1 : E};

    Sizes() = default;
    // all five, or one for each that is not known
    template <class... Given, class = std::enable_if_t<(std::is_arithmetic_v<Given> && ...) && sizeof...(Given) >= 1>>
    Sizes(Given... given) {
        const int64_t values[] = {static_cast<int64_t>(given)...};
        constexpr int count = sizeof...(Given);
        int next = 0;
        for (int i = 0; i < 5; ++i) {
            const bool all = count == 5;
            if (known[i] < 0) now[i] = values[all ? i : next < count ? next : count - 1];
            if (known[i] < 0) ++next;
        }
    }
};

}  // namespace kb

namespace pto {

template <int64_t A = -1, int64_t B = -1, int64_t C = -1, int64_t D = -1, int64_t E = -1>
struct Shape : kb::Sizes<A, B, C, D, E> {
    using kb::Sizes<A, B, C, D, E>::Sizes;
    static constexpr int64_t staticShape[5] = {A, B, C, D, E};
    int64_t (&shape)[5] = this->now;
    Shape() = default;
    Shape(const Shape &other) : kb::Sizes<A, B, C, D, E>(other) {}
    Shape &operator=(const Shape &other) { kb::Sizes<A, B, C, D, E>::operator=(other); return *this; }
};

template <int64_t A = -1, int64_t B = -1, int64_t C = -1, int64_t D = -1, int64_t E = -1>
struct Stride : kb::Sizes<A, B, C, D, E> {
    using kb::Sizes<A, B, C, D, E>::Sizes;
    static constexpr int64_t staticStride[5] = {A, B, C, D, E};
    int64_t (&stride)[5] = this->now;
    Stride() = default;
    Stride(const Stride &other) : kb::Sizes<A, B, C, D, E>(other) {}
    Stride &operator=(const Stride &other) { kb::Sizes<A, B, C, D, E>::operator=(other); return *this; }
};

// Sizes and strides of a matrix of a layout: by rows or columns, or of scales in blocks of 16 x 2, along the rows of
// the left operand's (MX_A_ZZ) and along the columns of the right one's (MX_B_NN).
template <class T, int64_t rows = -1, int64_t columns = -1, Layout layout = Layout::ND> struct TileShape2D;
template <class T, int64_t rows = -1, int64_t columns = -1, Layout layout = Layout::ND> struct BaseShape2D;
template <class T, int64_t R, int64_t C> struct TileShape2D<T, R, C, Layout::ND> : Shape<1, 1, 1, R, C> {
    using Shape<1, 1, 1, R, C>::Shape;
};
template <class T, int64_t R, int64_t C> struct BaseShape2D<T, R, C, Layout::ND> : Stride<R * C, R * C, R * C, C, 1> {
    static_assert(R > 0 && C > 0, "a shape that is known only when the program runs gives its strides itself");
};
template <class T, int64_t R, int64_t C>
struct TileShape2D<T, R, C, Layout::MX_A_ZZ> : Shape<1, R / 16, C / 2, 16, 2> {
    static_assert(R > 0 && C > 0 && R % 16 == 0 && C % 2 == 0, "scales of the left operand come in blocks of 16 x 2");
};
template <class T, int64_t R, int64_t C>
struct BaseShape2D<T, R, C, Layout::MX_A_ZZ> : Stride<R * C, C * 16, 32, 2, 1> {};
template <class T, int64_t R, int64_t C>
struct TileShape2D<T, R, C, Layout::MX_B_NN> : Shape<1, C / 16, R / 2, 16, 2> {
    static_assert(R > 0 && C > 0 && C % 16 == 0 && R % 2 == 0, "scales of the right operand come in blocks of 2 x 16");
};
template <class T, int64_t R, int64_t C>
struct BaseShape2D<T, R, C, Layout::MX_B_NN> : Stride<R * C, R * 16, 32, 2, 1> {};

template <class Element_, class Shape_, class Stride_, Layout Layout_ = Layout::ND> struct GlobalTensor {
    using Shape = Shape_;
    using Stride = Stride_;
    using RawDType = std::remove_cv_t<Element_>;
    using DType = RawDType;
    static constexpr Layout layout = Layout_;
    static constexpr int64_t staticShape[5] = {
        Shape::staticShape[0], Shape::staticShape[1], Shape::staticShape[2], Shape::staticShape[3], Shape::staticShape[4]
    };
    static constexpr int64_t staticStride[5] = {
        Stride::staticStride[0], Stride::staticStride[1], Stride::staticStride[2], Stride::staticStride[3],
        Stride::staticStride[4]
    };

    GlobalTensor() = default;
    template <class T> explicit GlobalTensor(T *data) : data_(const_cast<DType *>(reinterpret_cast<const DType *>(data))) {}
    template <class T> GlobalTensor(T *data, const Shape &shape) : GlobalTensor(data) { shape_ = shape; }
    template <class T> GlobalTensor(T *data, const Shape &shape, const Stride &stride) : GlobalTensor(data, shape) {
        stride_ = stride;
    }

    int64_t GetShape(int dim) const { return shape_.now[dim]; }
    int64_t GetStride(int dim) const { return stride_.now[dim]; }
    template <int dim> static constexpr int64_t GetShape() { return staticShape[dim]; }
    template <int dim> static constexpr int64_t GetStride() { return staticStride[dim]; }
    DType *data() const { return data_; }
    void SetAddr(uint64_t address) { data_ = reinterpret_cast<DType *>(address); }

    kb::TensorWords words() const {
        kb::TensorWords words{'G', kb::element<DType>(), static_cast<uint8_t>(Layout_), {}, 0, {}, {}};
        words.address = reinterpret_cast<uint64_t>(data_);
        for (int i = 0; i < 5; ++i) words.shape[i] = shape_.now[i], words.stride[i] = stride_.now[i];
        return words;
    }

  private:
    DType *data_ = nullptr;
    Shape shape_;
    Stride stride_;
};

template <TileType Loc_, class Element_, int Rows_, int Cols_, BLayout BFractal_ = BLayout::RowMajor,
          int RowValid_ = Rows_, int ColValid_ = Cols_, SLayout SFractal_ = SLayout::NoneBox, int SFractalSize_ = 512,
          PadValue PadVal_ = PadValue::Null, CompactMode Compact_ = CompactMode::Null>
struct Tile {
    using DType = Element_;
    static constexpr TileType Loc = Loc_;
    static constexpr int Rows = Rows_, Cols = Cols_, ValidRow = RowValid_, ValidCol = ColValid_;
    static constexpr int Numel = Rows * Cols, SFractalSize = SFractalSize_;
    static constexpr int RowStride = BFractal_ == BLayout::RowMajor ? Cols : 1;
    static constexpr int ColStride = BFractal_ == BLayout::RowMajor ? 1 : Rows;
    static constexpr BLayout BFractal = BFractal_;
    static constexpr SLayout SFractal = SFractal_;
    static constexpr PadValue PadVal = PadVal_;
    static constexpr CompactMode Compact = Compact_;
    static constexpr bool isRowMajor = BFractal_ == BLayout::RowMajor, isBoxedLayout = SFractal_ != SLayout::NoneBox;
    static constexpr bool isInnerRowMajor = SFractal_ == SLayout::RowMajor;
    static constexpr bool isInnerColMajor = SFractal_ == SLayout::ColMajor;
    static_assert(Rows > 0 && Cols > 0 && ValidRow <= Rows && ValidCol <= Cols, "a tile's valid part lies inside it");

    Tile() = default;
    // sizes for what is valid, where the type leaves them open
    template <class T, class = std::enable_if_t<std::is_integral_v<T>>> explicit Tile(T only) {
        if constexpr (RowValid_ < 0) rows_ = static_cast<int>(only);
        else columns_ = static_cast<int>(only);
    }
    template <class T, class U, class = std::enable_if_t<std::is_integral_v<T> && std::is_integral_v<U>>>
    Tile(T rows, U columns) {
        if constexpr (RowValid_ < 0) rows_ = static_cast<int>(rows);
        if constexpr (ColValid_ < 0) columns_ = static_cast<int>(columns);
    }

    int GetValidRow() const { return rows_; }
    int GetValidCol() const { return columns_; }
    template <class T, class U> void SetValidShape(T rows, U columns) {
        rows_ = static_cast<int>(rows), columns_ = static_cast<int>(columns);
    }
    template <class T> void SetValidRow(T rows) { rows_ = static_cast<int>(rows); }
    template <class T> void SetValidCol(T columns) { columns_ = static_cast<int>(columns); }

    DType GetValue(uint32_t element, KB_AT) const { return kb::ask<DType>("GetValue", KB_HERE, *this, element); }
    void SetValue(uint32_t element, DType value, KB_AT) {
        if constexpr (std::is_integral_v<DType>) kb::operate("SetValue", KB_HERE, *this, element, value);
        else kb::operate("SetValue", KB_HERE, *this, element, static_cast<double>(static_cast<float>(value)));
    }

    // a tile's address stands for its memory; nothing is stored there on the host
    uint64_t data() const { return static_cast<uint64_t>(offset_); }
    void kb_place(int64_t offset, uint32_t site) { offset_ = offset, site_ = site; }
    uint32_t kb_placed_at() const { return site_; }

    kb::TileWords words() const {
        const bool by_columns = BFractal_ == BLayout::ColMajor && SFractal_ == SLayout::NoneBox;
        return {'T',   static_cast<uint8_t>(Loc_), kb::element<Element_>(), static_cast<uint8_t>(by_columns), Rows_, Cols_, rows_,
                columns_, site_, offset_};
    }

  private:
    int64_t offset_ = 0;
    uint32_t site_ = 0;
    int rows_ = RowValid_ < 0 ? Rows_ : RowValid_, columns_ = ColValid_ < 0 ? Cols_ : ColValid_;
};

template <class E, int R, int C, int VR = R, int VC = C>
using TileLeft = Tile<TileType::Left, E, R, C, BLayout::RowMajor, VR, VC, SLayout::RowMajor, 512>;
template <class E, int R, int C, int VR = R, int VC = C>
using TileRight = Tile<TileType::Right, E, R, C, BLayout::RowMajor, VR, VC, SLayout::ColMajor, 512>;
template <class E, int R, int C, int VR = R, int VC = C>
using TileAcc = Tile<TileType::Acc, E, R, C, BLayout::ColMajor, VR, VC, SLayout::RowMajor, 1024>;
template <class E, int R, int C, int VR = R, int VC = C> using TileLeftCompact = TileLeft<E, R, C, VR, VC>;
template <class E, int R, int C, int VR = R, int VC = C> using TileRightCompact = TileRight<E, R, C, VR, VC>;
template <class E, int R, int C, int VR = R, int VC = C> using TileAccCompact = TileAcc<E, R, C, VR, VC>;
template <class E, int R, int C, int VR = R, int VC = C>
using TileLeftScale = Tile<TileType::ScaleLeft, E, R, C, BLayout::RowMajor, VR, VC, SLayout::RowMajor, 32>;
template <class E, int R, int C, int VR = R, int VC = C>
using TileRightScale = Tile<TileType::ScaleRight, E, R, C, BLayout::ColMajor, VR, VC, SLayout::ColMajor, 32>;

}  // namespace pto
