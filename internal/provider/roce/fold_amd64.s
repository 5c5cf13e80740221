#include "textflag.h"

// Go's assembler has the operands in the order sources, destination. VPTERNLOGQ $0x96
// is the exclusive or of all three.

// func fold(rest, head *[64]byte, dst *byte, p []byte, keys *[4]uint64)
TEXT ·fold(SB), NOSPLIT, $0-56
	MOVQ rest+0(FP), DI
	MOVQ head+8(FP), AX
	MOVQ dst+16(FP), R8
	MOVQ p_base+24(FP), SI
	MOVQ p_len+32(FP), CX
	MOVQ keys+48(FP), DX

	// Z0 to Z3 are the newest 256 bytes, all that came before folded into them. Each row of p is read once.
	VMOVDQU64       (AX), Z5
	VMOVDQU64       (SI), Z10
	VMOVDQU64       64(SI), Z1
	VMOVDQU64       128(SI), Z2
	VMOVDQU64       192(SI), Z3
	VBROADCASTI32X4 (DX), Z8
	VBROADCASTI32X4 16(DX), Z9
	TESTQ           R8, R8
	JZ              first
	VMOVDQU64       Z10, (R8)
	VMOVDQU64       Z1, 64(R8)
	VMOVDQU64       Z2, 128(R8)
	VMOVDQU64       Z3, 192(R8)

first:
	VPCLMULQDQ $0x00, Z9, Z5, Z0
	VPCLMULQDQ $0x11, Z9, Z5, Z5
	VPTERNLOGQ $0x96, Z10, Z5, Z0
	JMP        next

loop:
	ADDQ      $256, SI
	VMOVDQU64 (SI), Z10
	VMOVDQU64 64(SI), Z11
	VMOVDQU64 128(SI), Z12
	VMOVDQU64 192(SI), Z13
	TESTQ     R8, R8
	JZ        products
	ADDQ      $256, R8
	VMOVDQU64 Z10, (R8)
	VMOVDQU64 Z11, 64(R8)
	VMOVDQU64 Z12, 128(R8)
	VMOVDQU64 Z13, 192(R8)

products:
	VPCLMULQDQ $0x00, Z8, Z0, Z4
	VPCLMULQDQ $0x00, Z8, Z1, Z5
	VPCLMULQDQ $0x00, Z8, Z2, Z6
	VPCLMULQDQ $0x00, Z8, Z3, Z7
	VPCLMULQDQ $0x11, Z8, Z0, Z0
	VPCLMULQDQ $0x11, Z8, Z1, Z1
	VPCLMULQDQ $0x11, Z8, Z2, Z2
	VPCLMULQDQ $0x11, Z8, Z3, Z3
	VPTERNLOGQ $0x96, Z10, Z4, Z0
	VPTERNLOGQ $0x96, Z11, Z5, Z1
	VPTERNLOGQ $0x96, Z12, Z6, Z2
	VPTERNLOGQ $0x96, Z13, Z7, Z3

next:
	SUBQ $256, CX
	JNZ  loop

	// Each 64 bytes into the next.
	VPCLMULQDQ $0x00, Z9, Z0, Z4
	VPCLMULQDQ $0x11, Z9, Z0, Z0
	VPTERNLOGQ $0x96, Z0, Z4, Z1
	VPCLMULQDQ $0x00, Z9, Z1, Z5
	VPCLMULQDQ $0x11, Z9, Z1, Z1
	VPTERNLOGQ $0x96, Z1, Z5, Z2
	VPCLMULQDQ $0x00, Z9, Z2, Z6
	VPCLMULQDQ $0x11, Z9, Z2, Z2
	VPTERNLOGQ $0x96, Z2, Z6, Z3
	VMOVDQU64  Z3, (DI)
	VZEROUPPER
	RET
