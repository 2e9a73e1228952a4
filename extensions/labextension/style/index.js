import '@torch-workbench/views/style/index.css';
import './index.css';
