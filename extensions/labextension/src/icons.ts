import { LabIcon } from '@jupyterlab/ui-components';

function icon(name: string, body: string): LabIcon {
  const svgstr =
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">' +
    `<g class="jp-icon3" fill="#616161">${body}</g></svg>`;
  return new LabIcon({ name: `torch-workbench:${name}`, svgstr });
}

/** Axes with a falling curve of three nodes: the side panel and the launcher. */
export const workbenchIcon = icon(
  'workbench',
  '<path d="M2 1.5h1.4v11.1H14.5V14H2z"/>' +
    '<path d="M5.9 4.2 9 8.3l3.6-3.6.9.9-4.6 4.6-4.1-5.2z"/>' +
    '<circle cx="5.6" cy="4.2" r="1.7"/><circle cx="9" cy="9" r="1.7"/>' +
    '<circle cx="13" cy="5" r="1.7"/>',
);

export const graphIcon = icon(
  'graph',
  '<path d="M4.2 7.4 11 3.6l.7 1.2-6.1 3.4 6.1 3 -.6 1.3L4.2 9z"/>' +
    '<circle cx="3.8" cy="8.2" r="2.3"/><circle cx="12" cy="3.9" r="2.1"/>' +
    '<circle cx="12" cy="12.1" r="2.1"/>',
);

export const memoryIcon = icon(
  'memory',
  '<path d="M1.5 12.6h13V14h-13zM1.5 11.4V9l3.6-3 3 2.2 3-4.2 3.4 3.4v4z"/>',
);

export const diffIcon = icon(
  'diff',
  '<path d="M1.5 3H7v10H1.5zm1.3 1.3v7.4h2.9V4.3zM9 3h5.5v10H9z"/>',
);

/** Lines of code that become one block. */
export const compileIcon = icon(
  'compile',
  '<path d="M1.5 3h5v1.4h-5zM1.5 7.300h3.700v1.400H1.500zM1.500 11.600h5V13h-5z"/>' +
    '<path d="M6.300 5.400 8.900 8l-2.600 2.600-1-1L6.900 8 5.300 6.400zM9.800 3h4.700v10H9.800zm1.400 1.400v7.200h1.900V4.400z"/>',
);

/** Intervals beside a line. */
export const compareIcon = icon(
  'compare',
  '<path d="M4.300 1.500h1.400v13H4.300zM8 3.300h6.500v1.400H8zM1.500 7.300h8v1.400h-8zM9 11.300h5.500v1.400H9z"/>' +
    '<circle cx="11" cy="4" r="2"/><circle cx="6.500" cy="8" r="2"/><circle cx="12" cy="12" r="2"/>',
);

export const tensorboardIcon = icon(
  'tensorboard',
  '<path d="M1.5 12.8h13V14h-13zM2.5 7.500h2.400v4.300H2.500zM6.8 2h2.400v9.800H6.800zM11.1 5h2.400v6.800h-2.400z"/>',
);

export const captureIcon = icon(
  'capture',
  '<path d="M5.3 4 6.3 2.500h3.400l1 1.500H14a.9.9 0 0 1 .9.900v7.700a.9.9 0 0 1-.9.900H2a.9.9 0 0 1-.9-.900V4.900A.9.9 0 0 1 2 4zM8 5.700a3 3 0 1 0 0 6 3 3 0 0 0 0-6zm0 1.300a1.7 1.7 0 1 1 0 3.4 1.7 1.7 0 0 1 0-3.400z"/>',
);

export const stepIcon = icon('step', '<path d="M3 3v10l7-5zM11.3 3H13v10h-1.700z"/>');

/** By the kind of a capture. */
export const CAPTURE_ICONS = { graph: graphIcon, memory: memoryIcon, diff: diffIcon };
